import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

LETTERS = "_abcdef"


class TextTransform:
    def text_to_int(self, text):
        return [LETTERS.index(c) for c in text]

    def int_to_text(self, labels):
        return "".join(LETTERS[i] for i in labels)


class Speech(Dataset):
    """Each letter sounds for two to four frames of eight bands."""

    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        bands = torch.randn(len(LETTERS), 8, generator=torch.Generator().manual_seed(0))
        self.items = []
        for _ in range(n):
            word = torch.randint(1, len(LETTERS), (int(torch.randint(2, 6, (1,), generator=g)),), generator=g)
            frames = word.repeat_interleave(torch.randint(2, 5, (len(word),), generator=g))
            self.items.append((bands[frames] + 0.3 * torch.randn(len(frames), 8, generator=g), "".join(LETTERS[i] for i in word)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def data_processing(data):
    transform = TextTransform()
    spectrograms, labels, input_lengths, label_lengths = [], [], [], []
    for spectrogram, utterance in data:
        spectrograms.append(spectrogram)
        label = torch.tensor(transform.text_to_int(utterance))
        labels.append(label)
        input_lengths.append(len(spectrogram))
        label_lengths.append(len(label))
    return pad_sequence(spectrograms, batch_first=True), torch.cat(labels), torch.tensor(input_lengths), torch.tensor(label_lengths)


class SpeechModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(8, 24, 3, padding=1)
        self.classifier = nn.Sequential(nn.Linear(24, 24), nn.GELU(), nn.Linear(24, len(LETTERS)))

    def forward(self, x):
        return self.classifier(F.gelu(self.conv(x.transpose(1, 2))).transpose(1, 2))


def greedy_decode(output, input_lengths, labels, label_lengths):
    transform = TextTransform()
    decodes, targets = [], []
    rest = labels.tolist()
    for row, length, count in zip(output.argmax(-1).tolist(), input_lengths.tolist(), label_lengths.tolist()):
        targets.append(transform.int_to_text(rest[:count]))
        rest = rest[count:]
        row = row[:length]
        decodes.append(transform.int_to_text([c for i, c in enumerate(row) if c and (i == 0 or c != row[i - 1])]))
    return decodes, targets


def levenshtein(a, b):
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (x != y)))
        previous = current
    return previous[-1]


def train(model, device, train_loader, criterion, optimizer, scheduler, epoch):
    model.train()
    for batch_idx, (spectrograms, labels, input_lengths, label_lengths) in enumerate(train_loader):
        spectrograms, labels = spectrograms.to(device), labels.to(device)
        optimizer.zero_grad()
        output = F.log_softmax(model(spectrograms), dim=2).transpose(0, 1)
        loss = criterion(output, labels, input_lengths, label_lengths)
        loss.backward()
        optimizer.step()
        scheduler.step()
        if batch_idx % 3 == 0:
            print("Train Epoch: {} [{:.0f}%]\tLoss: {:.5f}".format(epoch, 100.0 * batch_idx / len(train_loader), loss.item()))


def test(model, device, test_loader, criterion, epoch):
    model.eval()
    test_loss, edits, characters, words = 0, 0, 0, []
    with torch.no_grad():
        for spectrograms, labels, input_lengths, label_lengths in test_loader:
            output = F.log_softmax(model(spectrograms.to(device)), dim=2).transpose(0, 1)
            test_loss += criterion(output, labels.to(device), input_lengths, label_lengths).item() / len(test_loader)
            decoded, targets = greedy_decode(output.transpose(0, 1).cpu(), input_lengths, labels, label_lengths)
            edits += sum(levenshtein(a, b) for a, b in zip(targets, decoded))
            characters += sum(map(len, targets))
            words += [f"{a} {b}" for a, b in zip(targets, decoded)]
    with open(f"decoded-{epoch}.txt", "w") as f:
        f.write("\n".join(words))
    print(f"Test set: Average loss: {test_loss:.5f}, character error rate: {edits / characters:.4f}")


def main(learning_rate=4e-2, batch_size=8, epochs=3):
    torch.manual_seed(7)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(Speech(144, 1), batch_size=batch_size, shuffle=True, collate_fn=data_processing)
    test_loader = DataLoader(Speech(37, 2), batch_size=batch_size, shuffle=False, collate_fn=data_processing)
    model = SpeechModel().to(device)
    print("parameters", sum(param.nelement() for param in model.parameters()))
    optimizer = torch.optim.AdamW(model.parameters(), learning_rate)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True).to(device)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=learning_rate, steps_per_epoch=len(train_loader), epochs=epochs)
    for epoch in range(1, epochs + 1):
        train(model, device, train_loader, criterion, optimizer, scheduler, epoch)
        test(model, device, test_loader, criterion, epoch)
    torch.save(model.state_dict(), "speech.pth")


if __name__ == "__main__":
    main()
