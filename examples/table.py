"""Rows of a table: six clinics classify tumours, with models of two sizes, and never show each other a row.

python examples/table.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from torch import nn

import scarlet

x, y = load_breast_cancer(return_X_y=True)
order = np.random.default_rng(0).permutation(len(x))
x, y = ((x - x.mean(0)) / x.std(0))[order], y[order]
public, held_out, clinics = x[:150], (x[150:250], y[150:250]), np.array_split(np.arange(250, len(x)), 6)


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 2))


def large() -> nn.Module:
    return nn.Sequential(nn.Linear(30, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))


sites = [
    scarlet.Site(name=f"clinic {k}", train=(x[rows], y[rows]), model=small if k % 2 else large)
    for k, rows in enumerate(clinics)
]
config = scarlet.Config(rounds=20, batch_size=10, lr=0.05, distil_lr=0.05)
result = scarlet.run(scarlet.ScarletConfig(), config, sites=sites, public=public, server_model=large, test=held_out)
print(result.rounds[["server_accuracy", "uplink_bytes", "downlink_bytes"]].tail(3))
print(f"server: {result.summary['server_accuracy']:.3f} with {result.summary['cumulative_bytes']} bytes in all")
