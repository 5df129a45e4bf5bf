from __future__ import annotations

from collections.abc import Iterator

from autodist.rule import Context, Example, Finding, raised, rule
from autodist.script import TrainingScript

EXAMPLES = [
    Example(
        before="""\
        import torch
        from torch import nn

        inputs, targets, adjacency = torch.randn(64, 4), torch.randn(64, 1), torch.rand(64, 64)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            loss = nn.functional.mse_loss(adjacency.mm(model(inputs)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import torch
        from torch import nn

        inputs, targets, adjacency = torch.randn(64, 4), torch.randn(64, 1), torch.rand(64, 64)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            loss = nn.functional.mse_loss(adjacency.mm(model(inputs)), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import gymnasium as gym
        import torch
        from torch import nn

        env = gym.make("CartPole-v1")
        policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)

        for episode in range(100):
            state, _ = env.reset()
            done, log_probs, rewards = False, [], []
            while not done:
                choice = torch.distributions.Categorical(logits=policy(torch.as_tensor(state)))
                action = choice.sample()
                state, reward, terminated, truncated, _ = env.step(action.item())
                done = terminated or truncated
                log_probs.append(choice.log_prob(action))
                rewards.append(reward)
            loss = -sum(rewards) * torch.stack(log_probs).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after="""\
        import gymnasium as gym
        import torch
        from torch import nn

        env = gym.make("CartPole-v1")
        policy = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        optimizer = torch.optim.Adam(policy.parameters(), lr=0.01)

        for episode in range(100):
            state, _ = env.reset()
            done, log_probs, rewards = False, [], []
            while not done:
                choice = torch.distributions.Categorical(logits=policy(torch.as_tensor(state)))
                action = choice.sample()
                state, reward, terminated, truncated, _ = env.step(action.item())
                done = terminated or truncated
                log_probs.append(choice.log_prob(action))
                rewards.append(reward)
            loss = -sum(rewards) * torch.stack(log_probs).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
    ),
    Example(
        before="""\
        import torch
        from torch import nn

        inputs, targets = torch.randn(64, 4), torch.randn(64, 1)
        model = nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(100):
            rows = torch.randint(len(inputs), (8,))
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """,
        after=None,
    ),
]


@rule("AD902")
def refuse_no_batches(script: TrainingScript, context: Context) -> Iterator[Finding]:
    """Refuse a script whose steps have no batch.

    Where every step sees all data, one graph, or an environment, there is nothing to deal out to the ranks.
    """
    yield from raised(script, "AD902")
