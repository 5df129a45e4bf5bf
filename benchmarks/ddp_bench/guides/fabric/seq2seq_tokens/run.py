import os
import random

import torch
import torch.nn as nn
from lightning_fabric import Fabric
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

PAD, BOS, EOS, VOCAB = 0, 1, 2, 12


class Reversals(Dataset):
    def __init__(self, size, seed):
        rng = random.Random(seed)
        self.pairs = []
        for _ in range(size):
            word = [rng.randrange(3, VOCAB) for _ in range(rng.randint(2, 7))]
            self.pairs.append((word, word[::-1]))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        source, target = self.pairs[index]
        return torch.tensor(source + [EOS]), torch.tensor([BOS] + target + [EOS])


def collate(batch):
    sources, targets = zip(*batch)
    return pad_sequence(sources, batch_first=True, padding_value=PAD), pad_sequence(targets, batch_first=True, padding_value=PAD)


class Encoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden, padding_idx=PAD)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)

    def forward(self, source):
        lengths = (source != PAD).sum(1)
        states, _ = self.rnn(self.embedding(source))
        last = states[torch.arange(len(source)), lengths - 1]
        return states, last.unsqueeze(0)


class Decoder(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, hidden, padding_idx=PAD)
        self.rnn = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(2 * hidden, VOCAB)

    def forward(self, tokens, state, memory, mask):
        output, state = self.rnn(self.embedding(tokens), state)
        scores = (output @ memory.transpose(1, 2)).masked_fill(~mask.unsqueeze(1), float("-inf"))
        context = scores.softmax(-1) @ memory
        return self.out(torch.cat([output, context], -1)), state


class Seq2Seq(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.encoder, self.decoder = Encoder(hidden), Decoder(hidden)

    def forward(self, source, target):
        memory, state = self.encoder(source)
        logits, _ = self.decoder(target, state, memory, source != PAD)
        return logits

    @torch.no_grad()
    def translate(self, source, steps=9):
        memory, state = self.encoder(source)
        tokens = torch.full((len(source), 1), BOS, device=source.device)
        words = []
        for _ in range(steps):
            logits, state = self.decoder(tokens, state, memory, source != PAD)
            tokens = logits.argmax(-1)
            words.append(tokens)
        return torch.cat(words, 1)


def train(fabric, model, loader, criterion, optimizer, device):
    model.train()
    epoch_loss = 0
    for source, target in loader:
        source, target = source.to(device), target.to(device)
        optimizer.zero_grad()
        logits = model(source, target[:, :-1])
        loss = criterion(logits.reshape(-1, VOCAB), target[:, 1:].reshape(-1))
        fabric.backward(loss)
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        epoch_loss += fabric.all_reduce(loss.detach()).item()
    return epoch_loss / len(loader)


def exact_matches(model, loader, device):
    model.eval()
    right = 0
    for source, target in loader:
        guess = model.translate(source.to(device)).cpu()
        for row, wanted in zip(guess, target[:, 1:]):
            wanted = wanted[wanted != PAD].tolist()
            right += row[: len(wanted)].tolist() == wanted
    return right / len(loader.dataset)


if __name__ == "__main__":
    torch.manual_seed(0)
    fabric = Fabric(accelerator="auto", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp")
    fabric.launch()
    device = fabric.device
    train_loader = DataLoader(Reversals(128, 1), batch_size=16 // fabric.world_size, shuffle=True, collate_fn=collate)
    test_loader = DataLoader(Reversals(30, 2), batch_size=16, collate_fn=collate)
    model = Seq2Seq().to(device)
    criterion = nn.CrossEntropyLoss(ignore_index=PAD)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer = fabric.setup(model, optimizer)
    model.mark_forward_method("translate")
    train_loader = fabric.setup_dataloaders(train_loader)
    for epoch in range(3):
        loss = train(fabric, model, train_loader, criterion, optimizer, device)
        exact = exact_matches(model, test_loader, device)
        fabric.print(f"Epoch {epoch + 1:02} | train loss {loss:.3f} | exact {exact:.3f}")
    fabric.save("seq2seq.pt", model.state_dict())
