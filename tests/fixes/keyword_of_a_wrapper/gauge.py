from torch import nn


class Gauge(nn.Module):
    """Counts the tokens that go through a model."""

    def __init__(self, model):
        super().__init__()
        self.model, self.tokens = model, 0

    def forward(self, ids, past_key_value=None):
        self.tokens += ids.shape[1]
        return self.model(ids, cache=past_key_value)


def gauged(load):
    """Loads models that count."""

    def loaded():
        return Gauge(load())

    return loaded
