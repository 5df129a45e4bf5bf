import copy
import json
import random

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

VOCAB, LENGTH = 16, 12


class Preferences(Dataset):
    """A prompt with a chosen and a rejected continuation: the chosen one counts upwards."""

    def __init__(self, n, seed):
        rng = random.Random(seed)
        self.rows = []
        for _ in range(n):
            prompt = [rng.randrange(1, VOCAB) for _ in range(rng.randint(2, 4))]
            good = [(prompt[-1] + k) % (VOCAB - 1) + 1 for k in range(rng.randint(3, 7))]
            bad = [rng.randrange(1, VOCAB) for _ in range(rng.randint(3, 7))]
            self.rows.append((prompt, good, bad))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, good, bad = self.rows[i]
        return {"chosen": self.pad(prompt, good), "rejected": self.pad(prompt, bad)}

    def pad(self, prompt, answer):
        tokens = prompt + answer
        mask = [0] * len(prompt) + [1] * len(answer)
        rest = LENGTH - len(tokens)
        return torch.tensor([tokens + [0] * rest, mask + [0] * rest])


class Policy(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        return self.head(self.gru(self.embedding(tokens))[0])


def get_batch_logps(logits, tokens, mask):
    logps = logits[:, :-1].log_softmax(-1).gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
    return (logps * mask[:, 1:]).sum(-1)


def concatenated_forward(model, batch):
    both = torch.cat([batch["chosen"], batch["rejected"]])
    tokens, mask = both[:, 0], both[:, 1]
    return get_batch_logps(model(tokens), tokens, mask).chunk(2)


def dpo_loss(policy_chosen, policy_rejected, ref_chosen, ref_rejected, beta):
    logits = (policy_chosen - policy_rejected) - (ref_chosen - ref_rejected)
    losses = -F.logsigmoid(beta * logits)
    return losses, beta * (policy_chosen - ref_chosen).detach(), beta * (policy_rejected - ref_rejected).detach()


class DPOTrainer:
    def __init__(self, policy, train_set, eval_set, batch_size=8, beta=0.3, lr=1e-2, log_path="metrics.jsonl"):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.policy = policy.to(self.device)
        self.reference = copy.deepcopy(policy).eval().requires_grad_(False).to(self.device)
        self.train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True, drop_last=True)
        self.eval_loader = DataLoader(eval_set, batch_size=batch_size)
        self.optimizer = torch.optim.RMSprop(self.policy.parameters(), lr=lr)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: min(1.0, (step + 1) / 5))
        self.beta = beta
        self.log_path = log_path
        self.step = 0

    def get_metrics(self, batch, split):
        batch = {name: value.to(self.device) for name, value in batch.items()}
        chosen, rejected = concatenated_forward(self.policy, batch)
        with torch.no_grad():
            ref_chosen, ref_rejected = concatenated_forward(self.reference, batch)
        losses, good, bad = dpo_loss(chosen, rejected, ref_chosen, ref_rejected, self.beta)
        metrics = {
            f"{split}/rewards/accuracies": (good > bad).float().tolist(),
            f"{split}/rewards/margins": (good - bad).tolist(),
            f"{split}/logps/chosen": chosen.detach().tolist(),
            f"{split}/loss": losses.detach().tolist(),
        }
        return losses.mean(), metrics

    def log(self, metrics):
        row = {"step": self.step, **{name: sum(values) / len(values) for name, values in metrics.items()}}
        with open(self.log_path, "a") as f:
            f.write(json.dumps(row) + "\n")
        return row

    def evaluate(self):
        self.policy.eval()
        gathered = {}
        with torch.no_grad():
            for batch in self.eval_loader:
                _, metrics = self.get_metrics(batch, "eval")
                for name, values in metrics.items():
                    gathered.setdefault(name, []).extend(values)
        row = self.log(gathered)
        print(f"step {self.step}: eval loss {row['eval/loss']:.5f} accuracy {row['eval/rewards/accuracies']:.4f}")

    def train(self, epochs):
        for _ in range(epochs):
            self.policy.train()
            for batch in self.train_loader:
                loss, metrics = self.get_metrics(batch, "train")
                self.optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.policy.parameters(), 5.0)
                self.optimizer.step()
                self.scheduler.step()
                self.step += 1
                if self.step % 3 == 0:
                    self.log(metrics)
            self.evaluate()
        torch.save({"state": self.policy.state_dict(), "step": self.step}, "policy.pt")


if __name__ == "__main__":
    torch.manual_seed(2)
    DPOTrainer(Policy(), Preferences(64, 1), Preferences(27, 2)).train(epochs=2)
