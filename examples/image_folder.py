"""A folder of images that is split by client already: DIR/client/class/image, and public images in another folder.

python examples/image_folder.py        makes such folders from scikit-learn's digits, and trains on them
"""

import sys
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

import scarlet


def make_folders(root: Path) -> None:
    """Four clients with some of the classes each; the last quarter of the images is public."""
    digits = load_digits()
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        client = root / "private" / f"client {(label + number % 3) % 4}" / f"digit {label}"
        folder = client if number < 1350 else root / "public"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image * 255 / 16).astype(np.uint8)).save(folder / f"{number}.png")


root = Path(sys.argv[1] if len(sys.argv) > 1 else mkdtemp())
if not (root / "private").exists():
    make_folders(root)
config = scarlet.Config(private=f"folder:{root / 'private'}", public=f"folder:{root / 'public'}", rounds=20)
result = scarlet.run(scarlet.ScarletConfig(), config, out=root / "run")
print(f"server {result.summary['server_accuracy']:.3f}, clients {result.summary['client_accuracy']:.3f}")
print(f"scarlet predict {root / 'run'} {next((root / 'public').iterdir())}")
