import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE, LATENT = 16, 3


def blobs(n, seed):
    g = torch.Generator().manual_seed(seed)
    centres = torch.rand(n, 1, 2, generator=g) * 8
    grid = torch.stack(torch.meshgrid(torch.arange(8), torch.arange(8), indexing="ij"), -1).view(1, 64, 2)
    x = torch.exp(-((grid - centres) ** 2).sum(-1) / 4)
    return TensorDataset(x, torch.randn(n, LATENT, generator=g))


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(64, 24)
        self.fc21 = nn.Linear(24, LATENT)
        self.fc22 = nn.Linear(24, LATENT)
        self.fc3 = nn.Linear(LATENT, 24)
        self.fc4 = nn.Linear(24, 64)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def decode(self, z):
        return torch.sigmoid(self.fc4(F.relu(self.fc3(z))))

    def forward(self, x, eps):
        mu, logvar = self.encode(x)
        return self.decode(mu + eps * torch.exp(0.5 * logvar)), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x, reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
train_loader = DataLoader(blobs(128, 1), batch_size=BATCH_SIZE, shuffle=True)
test_loader = DataLoader(blobs(40, 2), batch_size=BATCH_SIZE, shuffle=False)
model = VAE().to(device)
optimizer = optim.Adam(model.parameters(), lr=1e-3)


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data, eps) in enumerate(train_loader):
        data, eps = data.to(device), eps.to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data, eps)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % 3 == 0:
            print("Train Epoch: {} [{}/{}]\tLoss: {:.4f}".format(epoch, batch_idx, len(train_loader), loss.item() / len(data)))
    print("====> Epoch: {} Average loss: {:.4f}".format(epoch, train_loss / len(train_loader.dataset)))


def test(epoch):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for i, (data, eps) in enumerate(test_loader):
            data = data.to(device)
            recon_batch, mu, logvar = model(data, eps.to(device))
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
            if i == 0:
                torch.save(torch.stack([data[:8], recon_batch[:8]]).cpu(), "reconstruction_%d.pt" % epoch)
    print("====> Test set loss: {:.4f}".format(test_loss / len(test_loader.dataset)))


if __name__ == "__main__":
    for epoch in range(1, 3):
        train(epoch)
        test(epoch)
        sample = torch.linspace(-1, 1, 4 * LATENT).view(4, LATENT).to(device)
        with torch.no_grad():
            torch.save(model.decode(sample).cpu(), "sample_%d.pt" % epoch)
