"""The parts that training scripts are put together from, each in the ways in which people write it.

Every part is text in terms of the same few names (`model`, `optimizer`, `loader`, …), so that any way goes with any
other. `$` begins what the composition fills in.
"""

from __future__ import annotations

DATA = (
    """
generator = torch.Generator().manual_seed(7)
centers = torch.randn(CLASSES, FEATURES, generator=generator)
labels = torch.randint(0, CLASSES, (TRAIN + HELD_OUT,), generator=generator)
points = centers[labels] + 0.7 * torch.randn(len(labels), FEATURES, generator=generator)
train_set = TensorDataset(points[:TRAIN], labels[:TRAIN])
test_set = TensorDataset(points[TRAIN:], labels[TRAIN:])
""",
    """
class Blobs(Dataset):
    def __init__(self, train=True):
        generator = torch.Generator().manual_seed(7)
        centers = torch.randn(CLASSES, FEATURES, generator=generator)
        labels = torch.randint(0, CLASSES, (TRAIN + HELD_OUT,), generator=generator)
        points = centers[labels] + 0.7 * torch.randn(len(labels), FEATURES, generator=generator)
        part = slice(0, TRAIN) if train else slice(TRAIN, None)
        self.points, self.labels = points[part], labels[part]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.points[index], self.labels[index]


train_set = Blobs(train=True)
test_set = Blobs(train=False)
""",
    """
rng = np.random.RandomState(7)
centers = rng.randn(CLASSES, FEATURES)
labels = rng.randint(0, CLASSES, TRAIN + HELD_OUT)
points = (centers[labels] + 0.7 * rng.randn(len(labels), FEATURES)).astype(np.float32)
full_set = TensorDataset(torch.from_numpy(points), torch.from_numpy(labels))
train_set, test_set = random_split(full_set, [TRAIN, HELD_OUT], generator=torch.Generator().manual_seed(3))
""",
    """
class Table(Dataset):
    def __init__(self, points, labels, transform=None):
        self.points = points
        self.labels = labels
        self.transform = transform

    def __len__(self):
        return len(self.points)

    def __getitem__(self, i):
        x = self.points[i]
        if self.transform is not None:
            x = self.transform(x)
        return torch.tensor(x, dtype=torch.float32), int(self.labels[i])


rng = np.random.RandomState(7)
centers = rng.randn(CLASSES, FEATURES)
labels = rng.randint(0, CLASSES, TRAIN + HELD_OUT)
points = centers[labels] + 0.7 * rng.randn(len(labels), FEATURES)
full_set = Table(points, labels, transform=lambda x: (x - x.mean()) / x.std())
order = rng.permutation(len(full_set))
train_set = Subset(full_set, order[:TRAIN])
test_set = Subset(full_set, order[TRAIN:])
""",
    """
class Augmented(Dataset):
    def __init__(self, count, seed, train):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, count)
        self.points = rng.normal(size=(count, FEATURES)) * 0.7 + self.labels[:, None]
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        point = torch.tensor(self.points[idx]).float()
        if self.train and random.random() < 0.5:
            point = point + 0.1 * torch.randn(FEATURES)
        return point, torch.tensor(self.labels[idx]).long()


train_set, test_set = Augmented(TRAIN, 0, True), Augmented(HELD_OUT, 1, False)
""",
)

LOADERS = (
    """
train_loader = DataLoader(train_set, batch_size=$batch, shuffle=True)
test_loader = DataLoader(test_set, batch_size=$batch, shuffle=False)
""",
    """
train_loader = torch.utils.data.DataLoader(train_set, batch_size=$batch, shuffle=True, drop_last=True)
test_loader = torch.utils.data.DataLoader(test_set, batch_size=64)
""",
    """
loaders = {
    "train": DataLoader(train_set, batch_size=$batch, shuffle=True),
    "val": DataLoader(test_set, batch_size=$batch),
}
train_loader, test_loader = loaders["train"], loaders["val"]
""",
    """
counts = torch.bincount(torch.tensor([int(y) for _, y in train_set]), minlength=CLASSES)
weights = [1.0 / counts[int(y)].item() for _, y in train_set]
sampler = WeightedRandomSampler(weights, num_samples=len(train_set), replacement=True)
train_loader = DataLoader(train_set, batch_size=$batch, sampler=sampler)
test_loader = DataLoader(test_set, batch_size=1)
""",
    """
kwargs = {"num_workers": 0, "pin_memory": torch.cuda.is_available()}
train_loader = DataLoader(train_set, $batch, shuffle=True, **kwargs)
test_loader = DataLoader(test_set, $batch * 2, shuffle=False, **kwargs)
""",
    """
def collate(samples):
    xs, ys = zip(*samples)
    return torch.stack(xs), torch.tensor([int(y) for y in ys])


train_loader = DataLoader(train_set, batch_size=$batch, shuffle=True, collate_fn=collate)
test_loader = DataLoader(test_set, batch_size=$batch, shuffle=True, collate_fn=collate)
""",
)

MODELS = (
    """
class Net(nn.Module):
    def __init__(self, hidden=16):
        super().__init__()
        self.fc1 = nn.Linear(FEATURES, hidden)
        self.fc2 = nn.Linear(hidden, CLASSES)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))
""",
    """
class Net(nn.Module):
    def __init__(self, hidden=16):
        super(Net, self).__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, hidden), nn.BatchNorm1d(hidden), nn.ReLU(inplace=True))
        self.head = nn.Linear(hidden, CLASSES)
        self.apply(self._init_weights)

    def _init_weights(self, m):
        if isinstance(m, nn.Linear):
            nn.init.xavier_uniform_(m.weight)
            nn.init.zeros_(m.bias)

    def forward(self, x):
        return self.head(self.body(x))
""",
    """
class Net(nn.Module):
    def __init__(self, hidden=16, p=0.2):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(FEATURES, hidden), nn.Linear(hidden, hidden)])
        self.dropout = nn.Dropout(p)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, x):
        for layer in self.layers:
            x = self.dropout(torch.tanh(layer(x)))
        return self.out(x)
""",
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(1, 8)
        self.rnn = nn.GRU(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x):
        h, _ = self.rnn(self.embed(x.unsqueeze(-1)))
        return self.out(self.norm(h[:, -1]))
""",
)

MAKE_MODEL = (
    "model = Net().to(device)\n",
    "model = Net()\nmodel.to(device)\nprint(sum(p.numel() for p in model.parameters() if p.requires_grad))\n",
    "model = Net()\nif torch.cuda.is_available():\n    model = model.cuda()\nprint(model)\n",
)

LOSSES = (
    "criterion = nn.CrossEntropyLoss()\n",
    "criterion = nn.CrossEntropyLoss(label_smoothing=0.1).to(device)\n",
    "def criterion(output, y):\n    return F.nll_loss(F.log_softmax(output, dim=1), y)\n",
    'criterion = nn.CrossEntropyLoss(reduction="sum")\n',
)

OPTIMIZERS = (
    "optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)\n",
    "optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)\n",
    """
decay = [p for n, p in model.named_parameters() if p.ndim > 1]
no_decay = [p for n, p in model.named_parameters() if p.ndim <= 1]
optimizer = optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": no_decay, "weight_decay": 0.0}], lr=5e-3)
""",
    "optimizer = optim.RMSprop(filter(lambda p: p.requires_grad, model.parameters()), lr=0.005)\n",
)

SCHEDULERS: tuple[tuple[str, str, str], ...] = (
    ("", "", ""),
    ("scheduler = optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)\n", "", "scheduler.step()\n"),
    (
        "scheduler = optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=EPOCHS * len(train_loader) + 1)\n",
        "scheduler.step()\n",
        "",
    ),
    (
        "scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)\n",
        "",
        "scheduler.step(test_loss)\n",
    ),
    (
        "scheduler = optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 4))\n",
        "scheduler.step()\n",
        "",
    ),
    (
        "scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)\n",
        "",
        "scheduler.step()\nprint('lr', optimizer.param_groups[0]['lr'])\n",
    ),
)
"""How it is made, what a step and what an epoch does with it."""

STEPS: tuple[tuple[str, str], ...] = (
    (
        "",
        """
optimizer.zero_grad()
output = model(x)
loss = criterion(output, y)
loss.backward()
optimizer.step()
$each_step""",
    ),
    (
        "",
        """
optimizer.zero_grad()
output = model(x)
loss = criterion(output, y)
loss.backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
optimizer.step()
$each_step""",
    ),
    (
        "",
        """
output = model(x)
loss = criterion(output, y)
(loss / 2).backward()
if (i + 1) % 2 == 0 or i + 1 == len(train_loader):
    optimizer.step()
    optimizer.zero_grad()
$each_step""",
    ),
    (
        'scaler = torch.amp.GradScaler(device.type, enabled=device.type == "cuda")\n',
        """
optimizer.zero_grad(set_to_none=True)
with torch.autocast(device_type=device.type, enabled=device.type == "cuda"):
    output = model(x)
    loss = criterion(output, y)
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
$each_step""",
    ),
    (
        "",
        """
output = model(x)
penalty = sum(p.pow(2).sum() for p in model.parameters())
loss = criterion(output, y) + 1e-4 * penalty
optimizer.zero_grad()
loss.backward()
optimizer.step()
$each_step""",
    ),
    (
        "global_step = 0\n",
        """
for group in optimizer.param_groups:
    group["lr"] = 0.01 * min(1.0, (i + 1 + epoch * len(train_loader)) / 5)
optimizer.zero_grad()
output = model(x)
loss = criterion(output, y)
loss.backward()
optimizer.step()
$each_step""",
    ),
    (
        "",
        """
output = model(x)
loss = criterion(output, y)
if not math.isfinite(loss.item()):
    print("Loss is {}, stopping training".format(loss.item()))
    sys.exit(1)
optimizer.zero_grad()
loss.backward()
norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
optimizer.step()
if i % 2 == 0:
    print("grad norm", float(norm))
$each_step""",
    ),
    (
        "",
        """
model.zero_grad()
output = model(x)
losses_of_samples = F.cross_entropy(output, y, reduction="none")
loss = losses_of_samples.mean()
loss.backward()
optimizer.step()
$each_step""",
    ),
    (
        "",
        """
x = x + 0.05 * torch.randn_like(x)
optimizer.zero_grad()
output = model(x)
main_loss = criterion(output, y)
entropy = -(output.softmax(1) * output.log_softmax(1)).sum(1).mean()
loss = main_loss + 0.01 * entropy
loss.backward()
optimizer.step()
$each_step""",
    ),
    (
        "ema = {name: p.detach().clone() for name, p in model.named_parameters()}\n",
        """
optimizer.zero_grad()
output = model(x)
loss = criterion(output, y)
loss.backward()
optimizer.step()
with torch.no_grad():
    for name, p in model.named_parameters():
        ema[name].mul_(0.9).add_(p.detach(), alpha=0.1)
$each_step""",
    ),
    (
        "teacher = copy.deepcopy(model)\nteacher.eval()\n",
        """
with torch.no_grad():
    soft = teacher(x).softmax(1)
output = model(x)
loss = 0.5 * criterion(output, y) + 0.5 * F.kl_div(output.log_softmax(1), soft, reduction="batchmean")
optimizer.zero_grad()
loss.backward()
optimizer.step()
$each_step""",
    ),
)
"""What is made before training, and what a step does."""

METRICS: tuple[tuple[str, str, str], ...] = (
    ("running_loss = 0.0\n", "running_loss += loss.item()\n", "train_loss = running_loss / len(train_loader)\n"),
    (
        "total_loss, seen = 0.0, 0\n",
        "total_loss += loss.item() * x.size(0)\nseen += x.size(0)\n",
        "train_loss = total_loss / seen\n",
    ),
    (
        "total_loss, hits = 0.0, 0\n",
        "total_loss += loss.item() * len(x)\nhits += (output.argmax(1) == y).sum().item()\n",
        """
train_loss = total_loss / len(train_loader.dataset)
print('train accuracy', hits / len(train_loader.dataset))
""",
    ),
    ("losses = []\n", "losses.append(loss.item())\n", "train_loss = np.mean(losses)\n"),
    (
        "losses = []\n",
        "losses.append(loss.detach())\n",
        "train_loss = torch.stack(losses).mean().item()\n",
    ),
    (
        "meter = AverageMeter()\n",
        "meter.update(loss.item(), x.size(0))\n",
        "train_loss = meter.avg\n",
    ),
    (
        "running_loss = 0.0\ntrain_loss = 0.0\n",
        """
running_loss += loss.item()
train_loss += loss.item()
if i % 2 == 1:
    print('[%d, %5d] loss: %.6f' % (epoch + 1, i + 1, running_loss / 2))
    running_loss = 0.0
""",
        "",
    ),
    (
        "train_loss = 0\ncorrect = 0\ntotal = 0\n",
        """
train_loss += loss.item()
_, predicted = output.max(1)
total += y.size(0)
correct += predicted.eq(y).sum().item()
shown = 'Loss: %.4f | Acc: %.3f%% (%d/%d)' % (train_loss / (i + 1), 100.0 * correct / total, correct, total)
print(i, len(train_loader), shown)
""",
        "",
    ),
    (
        "ema_loss = None\n",
        "ema_loss = loss.item() if ema_loss is None else 0.9 * ema_loss + 0.1 * loss.item()\n",
        "train_loss = ema_loss\n",
    ),
    (
        "losses, top1 = AverageMeter(), AverageMeter()\n",
        """
(prec1,) = accuracy_of(output, y, topk=(1,))
losses.update(loss.item(), x.size(0))
top1.update(prec1.item(), x.size(0))
if i % 2 == 0:
    print('Epoch: [{0}][{1}/{2}]\\t'
          'Loss {loss.val:.4f} ({loss.avg:.4f})\\t'
          'Prec@1 {top1.val:.3f} ({top1.avg:.3f})'.format(epoch, i, len(train_loader), loss=losses, top1=top1))
""",
        "train_loss = losses.avg\n",
    ),
    (
        "epoch_loss, epoch_acc = 0, 0\n",
        "acc = (output.argmax(1) == y).float().mean()\nepoch_loss += loss.item()\nepoch_acc += acc.item()\n",
        "train_loss = epoch_loss / len(train_loader)\nprint('train acc', epoch_acc / len(train_loader))\n",
    ),
    (
        "recent = collections.deque(maxlen=3)\n",
        "recent.append(loss.item())\nif i % 2 == 0:\n    print(epoch, i, sum(recent) / len(recent))\n",
        "train_loss = sum(recent) / len(recent)\n",
    ),
    (
        "running = torch.zeros(())\nhits = torch.zeros((), dtype=torch.long)\nseen = 0\n",
        "running += loss.detach().cpu() * len(y)\nhits += (output.argmax(1) == y).sum().cpu()\nseen += len(y)\n",
        "train_loss = (running / seen).item()\nprint('accuracy', (hits / seen).item())\n",
    ),
    (
        "train_loss = 0.0\nshown, labels_shown = [], []\n",
        """
train_loss += loss.item() / len(train_loader)
shown.append(output.detach().argmax(1).cpu())
labels_shown.append(y.cpu())
""",
        "print('train accuracy', (torch.cat(shown) == torch.cat(labels_shown)).float().mean().item())\n",
    ),
    (
        "stats = {'loss': 0.0, 'correct': 0, 'count': 0}\n",
        """
stats['loss'] += loss.item() * x.shape[0]
stats['correct'] += int((output.argmax(dim=1) == y).sum())
stats['count'] += x.shape[0]
""",
        "train_loss = stats['loss'] / stats['count']\nprint({k: v for k, v in stats.items() if k != 'loss'})\n",
    ),
    (
        "train_loss, batches = 0.0, 0\nworst = 0.0\n",
        "train_loss += loss.item()\nbatches += 1\nworst = max(worst, loss.item())\n",
        "train_loss /= batches\n",
    ),
)
"""Before, in and after an epoch."""

METER = '''
class AverageMeter(object):
    """Computes and stores the average and current value"""

    def __init__(self):
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count
'''

EVALUATIONS = (
    """
test_loss, correct = 0, 0
with torch.no_grad():
    for x, y in test_loader:
        x, y = x.to(device), y.to(device)
        output = model(x)
        test_loss += F.cross_entropy(output, y, reduction="sum").item()
        pred = output.argmax(dim=1, keepdim=True)
        correct += pred.eq(y.view_as(pred)).sum().item()
test_loss /= len(test_loader.dataset)
accuracy = 100.0 * correct / len(test_loader.dataset)
""",
    """
correct, total, test_loss = 0, 0, 0.0
with torch.no_grad():
    for data in test_loader:
        x, y = data[0].to(device), data[1].to(device)
        output = model(x)
        test_loss += F.cross_entropy(output, y).item()
        _, predicted = torch.max(output.data, 1)
        total += y.size(0)
        correct += (predicted == y).sum().item()
test_loss = test_loss / len(test_loader)
accuracy = 100 * correct / total
""",
    """
predictions, targets = [], []
with torch.no_grad():
    for x, y in test_loader:
        predictions.append(model(x.to(device)).cpu())
        targets.append(y)
predictions = torch.cat(predictions)
targets = torch.cat(targets)
test_loss = F.cross_entropy(predictions, targets).item()
accuracy = (predictions.argmax(1) == targets).float().mean().item() * 100
""",
    """
all_predictions, all_targets = [], []
test_loss = 0.0
with torch.no_grad():
    for x, y in test_loader:
        output = model(x.to(device))
        test_loss += F.cross_entropy(output, y.to(device)).item() * y.size(0)
        all_predictions.extend(output.argmax(1).cpu().numpy())
        all_targets.extend(y.numpy())
test_loss /= len(test_set)
accuracy = np.mean(np.array(all_predictions) == np.array(all_targets)) * 100
""",
    """
confusion = torch.zeros(CLASSES, CLASSES)
test_loss = 0.0
with torch.no_grad():
    for x, y in test_loader:
        output = model(x.to(device))
        test_loss += F.cross_entropy(output, y.to(device), reduction="sum").item()
        for t, p in zip(y.view(-1), output.argmax(1).cpu().view(-1)):
            confusion[t.long(), p.long()] += 1
test_loss /= confusion.sum().item()
accuracy = (confusion.diag().sum() / confusion.sum()).item() * 100
print(confusion.diag() / confusion.sum(1).clamp(min=1))
""",
    """
class_correct = [0.0] * CLASSES
class_total = [0.0] * CLASSES
test_loss = 0.0
with torch.no_grad():
    for x, y in test_loader:
        x, y = x.to(device), y.to(device)
        output = model(x)
        test_loss += F.cross_entropy(output, y).item()
        hits = (output.argmax(1) == y).squeeze()
        for k in range(y.size(0)):
            class_correct[y[k].item()] += hits.view(-1)[k].item()
            class_total[y[k].item()] += 1
for c in range(CLASSES):
    print('class %d: %d of %d' % (c, class_correct[c], class_total[c]))
test_loss /= len(test_loader)
accuracy = 100 * sum(class_correct) / sum(class_total)
""",
    """
losses, accuracies = [], []
with torch.no_grad():
    for x, y in test_loader:
        output = model(x.to(device))
        losses.append(F.cross_entropy(output, y.to(device)).item())
        accuracies.append((output.argmax(1).cpu() == y).float().mean().item())
test_loss = sum(losses) / len(losses)
accuracy = 100 * np.mean(accuracies)
""",
    """
meters = {"loss": AverageMeter(), "acc": AverageMeter()}
with torch.no_grad():
    for i, (x, y) in enumerate(test_loader):
        x, y = x.to(device), y.to(device)
        output = model(x)
        meters["loss"].update(F.cross_entropy(output, y).item(), x.size(0))
        meters["acc"].update(accuracy_of(output, y)[0].item(), x.size(0))
test_loss, accuracy = meters["loss"].avg, meters["acc"].avg
""",
    """
scores = []
truth = np.array([])
test_loss = 0
for x, y in test_loader:
    with torch.no_grad():
        output = model(x.to(device))
    test_loss += F.cross_entropy(output, y.to(device)).item()
    scores.append(F.softmax(output, dim=-1).cpu().numpy())
    truth = np.append(truth, y.numpy())
scores = np.concatenate(scores)
test_loss /= len(test_loader)
accuracy = 100.0 * (scores.argmax(axis=1) == truth).mean()
print(np.bincount(truth.astype(int)[scores.argmax(axis=1) == truth], minlength=CLASSES))
np.save("scores.npy", scores)
""",
    """
wrong = []
test_loss, hits = 0.0, 0
with torch.inference_mode():
    for b, (x, y) in enumerate(test_loader):
        output = model(x.to(device))
        test_loss += F.cross_entropy(output, y.to(device), reduction="sum")
        predicted = output.argmax(1).cpu()
        hits += (predicted == y).sum()
        wrong += [(b, int(k)) for k in (predicted != y).nonzero()]
test_loss = (test_loss / len(test_loader.dataset)).item()
accuracy = 100 * hits.item() / len(test_loader.dataset)
print("wrong:", wrong[:5], len(wrong))
""",
)

DECISIONS: tuple[tuple[str, str], ...] = (
    ("", ""),
    (
        "best_accuracy = 0.0\n",
        """
if accuracy > best_accuracy:
    best_accuracy = accuracy
    torch.save(model.state_dict(), "best.pt")
""",
    ),
    (
        'best_loss = float("inf")\nbad_epochs = 0\n',
        """
if test_loss < best_loss:
    best_loss = test_loss
    bad_epochs = 0
    best_state = copy.deepcopy(model.state_dict())
else:
    bad_epochs += 1
    if bad_epochs >= 1:
        print("early stop after epoch", epoch)
        break
""",
    ),
    (
        "best_accuracy = 0.0\n",
        """
is_best = accuracy > best_accuracy
best_accuracy = max(accuracy, best_accuracy)
state = {
    "epoch": epoch + 1,
    "state_dict": model.state_dict(),
    "best": best_accuracy,
    "optimizer": optimizer.state_dict(),
}
torch.save(state, "checkpoint.pt")
if is_best:
    shutil.copyfile("checkpoint.pt", "model_best.pt")
""",
    ),
    (
        'os.makedirs("runs", exist_ok=True)\n',
        """
if epoch % 1 == 0:
    torch.save({"model": model.state_dict(), "loss": train_loss}, os.path.join("runs", f"epoch_{epoch}.pt"))
""",
    ),
    (
        "stopper = EarlyStopping(patience=1)\n",
        """
stopper(test_loss, model)
if stopper.early_stop:
    print("Early stopping")
    break
""",
    ),
    (
        "best_loss = np.inf\nbest_file = None\n",
        """
if test_loss < best_loss:
    best_loss = test_loss
    if best_file is not None and os.path.exists(best_file):
        os.remove(best_file)
    best_file = f"model_{epoch:02d}_{test_loss:.4f}.pt"
    torch.save(model.state_dict(), best_file)
""",
    ),
    (
        'best = {"loss": 1e9, "epoch": -1}\n',
        """
if train_loss < best["loss"]:
    best["loss"], best["epoch"] = train_loss, epoch
    torch.save({"model": model.state_dict(), **best}, "best.pth")
if train_loss < 1e-3 or accuracy == 100:
    print("Converged")
    break
""",
    ),
    (
        """
start = 0
if os.path.isfile("resume.pt"):
    checkpoint = torch.load("resume.pt", map_location=device)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    start = checkpoint["epoch"]
    print("=> loaded checkpoint (epoch {})".format(start))
""",
        """
if epoch < start:
    continue
torch.save({"epoch": epoch + 1, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, "resume.pt")
""",
    ),
    (
        "previous = None\n",
        """
if previous is not None and train_loss > previous:
    for g in optimizer.param_groups:
        g["lr"] *= 0.5
    print("halved the learning rate")
previous = train_loss
""",
    ),
    (
        "best_model, best_accuracy = None, -1\n",
        """
if accuracy >= best_accuracy:
    best_accuracy = accuracy
    best_model = copy.deepcopy(model)
    with open("best.txt", "w") as f:
        f.write(f"{epoch} {accuracy:.3f}\\n")
""",
    ),
)
"""Before training and after an epoch."""

STOPPER = """
class EarlyStopping:
    def __init__(self, patience=3, delta=0.0, path="checkpoint.pt"):
        self.patience = patience
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.delta = delta
        self.path = path

    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
        elif score < self.best_score + self.delta:
            self.counter += 1
            print(f"EarlyStopping counter: {self.counter} out of {self.patience}")
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0

    def save_checkpoint(self, val_loss, model):
        print(f"Validation loss is {val_loss:.6f}. Saving model ...")
        torch.save(model.state_dict(), self.path)
"""

REPORTS: tuple[tuple[str, str, str], ...] = (
    ("", "print(f'epoch {epoch}: train {train_loss:.6f} test {test_loss:.6f} accuracy {accuracy:.2f}%')\n", ""),
    (
        'history = {"train": [], "test": [], "accuracy": []}\n',
        'history["train"].append(train_loss)\nhistory["test"].append(test_loss)\nhistory["accuracy"].append(accuracy)\n',
        """
with open("history.json", "w") as f:
    json.dump({k: [float(v) for v in vs] for k, vs in history.items()}, f)
""",
    ),
    (
        'log = open("log.txt", "w")\n',
        "log.write('%d\\t%.6f\\t%.6f\\t%.2f\\n' % (epoch, train_loss, test_loss, accuracy))\nlog.flush()\n",
        "log.close()\n",
    ),
    (
        'logging.basicConfig(level=logging.INFO, format="%(message)s")\nlogger = logging.getLogger(__name__)\n',
        'logger.info("epoch %d train %.6f test %.6f acc %.2f", epoch, train_loss, test_loss, accuracy)\n',
        'logger.info("done")\n',
    ),
    (
        "rows = []\n",
        "rows.append([epoch, train_loss, test_loss, accuracy])\nprint(rows[-1])\n",
        """
with open("result.csv", "w", newline="") as f:
    writer = csv.writer(f)
    writer.writerow(["epoch", "train", "test", "accuracy"])
    writer.writerows(rows)
""",
    ),
    (
        "epochs_seen, train_curve, test_curve = [], [], []\n",
        "epochs_seen.append(epoch)\ntrain_curve.append(train_loss)\ntest_curve.append(test_loss)\n",
        """
np.savetxt("curves.txt", np.stack([epochs_seen, train_curve, test_curve], axis=1))
print("best epoch", int(np.argmin(test_curve)), "lowest", min(train_curve))
""",
    ),
    (
        "history = []\n",
        "history.append({'epoch': epoch, 'train_loss': train_loss, 'test_loss': test_loss, 'acc': accuracy})\n",
        """
with open("history.csv", "w") as f:
    f.write("epoch,train_loss,test_loss,acc\\n")
    for row in history:
        f.write(f"{row['epoch']},{row['train_loss']:.6f},{row['test_loss']:.6f},{row['acc']:.2f}\\n")
print(max(history, key=lambda row: row["acc"])["epoch"])
""",
    ),
    (
        "",
        """
message = "Epoch {:d} | loss {:.5f} | test {:.5f} | acc {:.2f}".format(epoch, train_loss, test_loss, accuracy)
print(message)
with open("log.txt", "a") as f:
    f.write(message + "\\n")
""",
        "",
    ),
    (
        "",
        """
logs = dict(epoch=epoch, train=round(train_loss, 6), test=round(test_loss, 6), acc=accuracy)
print(json.dumps(logs))
""",
        "",
    ),
)
"""Before training, after an epoch, at the end."""

ENDINGS = (
    'torch.save(model.state_dict(), "last.pt")\n',
    'torch.save(model, "whole.pt")\nprint("Finished Training")\n',
    """
model.eval()
with torch.no_grad():
    sample, label = test_set[0]
    print("prediction", model(sample.unsqueeze(0).to(device)).argmax(1).item(), "label", int(label))
""",
    """
x, y = next(iter(test_loader))
model.eval()
with torch.no_grad():
    print(model(x.to(device)).softmax(1)[:3], y[:3])
""",
    """
for name, p in model.named_parameters():
    print(name, tuple(p.shape), p.detach().norm().item())
""",
)

ACCURACY = '''
def accuracy_of(output, target, topk=(1,)):
    """Computes the accuracy over the k top predictions"""
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]
'''
