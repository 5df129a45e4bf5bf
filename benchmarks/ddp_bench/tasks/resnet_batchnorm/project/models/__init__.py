from .resnet import resnet8

__all__ = ["resnet8"]
