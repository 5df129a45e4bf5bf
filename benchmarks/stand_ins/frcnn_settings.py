"""Settings of a small Faster R-CNN for the pictures of ``voc``: ``voc.yaml``."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """\
dataset_params:
  im_train_path: 'VOC2007/JPEGImages'
  ann_train_path: 'VOC2007/Annotations'
  im_test_path: 'VOC2007/JPEGImages'
  ann_test_path: 'VOC2007/Annotations'
  num_classes : 21
model_params:
  im_channels : 3
  aspect_ratios: [0.5, 1, 2]
  scales: [16, 32, 64]
  min_im_size : 64
  max_im_size : 96
  backbone_out_channels : 512
  fc_inner_dim : 64
  rpn_bg_threshold : 0.3
  rpn_fg_threshold : 0.7
  rpn_nms_threshold : 0.7
  rpn_train_prenms_topk : 200
  rpn_test_prenms_topk : 100
  rpn_train_topk : 50
  rpn_test_topk : 30
  rpn_batch_size : 32
  rpn_pos_fraction : 0.5
  roi_iou_threshold : 0.5
  roi_low_bg_iou : 0.0
  roi_pool_size : 7
  roi_nms_threshold : 0.3
  roi_topk_detections : 20
  roi_score_threshold : 0.05
  roi_batch_size : 16
  roi_pos_fraction : 0.25
train_params:
  task_name: 'voc'
  seed : 1111
  acc_steps : 4
  num_epochs: 1
  lr_steps : [12, 16]
  lr: 0.001
  ckpt_name: 'faster_rcnn_voc2007.pth'
"""


def write(folder: Path) -> None:
    """The file alone."""
    (folder / "voc.yaml").write_text(SETTINGS, encoding="utf-8")
