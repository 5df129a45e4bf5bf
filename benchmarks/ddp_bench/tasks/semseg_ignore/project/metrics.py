import numpy as np


class RunningConfusion:
    """Counts of true and predicted classes, from which IoU per class follows."""

    def __init__(self, n_classes, ignore_index):
        self.n_classes, self.ignore_index = n_classes, ignore_index
        self.confusion = np.zeros((n_classes, n_classes), dtype=np.int64)

    def update(self, truth, predicted):
        valid = truth != self.ignore_index
        index = self.n_classes * truth[valid].astype(int) + predicted[valid]
        self.confusion += np.bincount(index, minlength=self.n_classes**2).reshape(self.n_classes, self.n_classes)

    def scores(self):
        hit = np.diag(self.confusion)
        union = self.confusion.sum(0) + self.confusion.sum(1) - hit
        iou = hit / np.maximum(union, 1)
        return {"pixel accuracy": hit.sum() / self.confusion.sum(), "mean IoU": iou.mean(), "IoU": iou.tolist()}
