"""`python -m tidemill_tokenizer`: serve one model's tokenizer."""

from tidemill_common import server
from tidemill_tokenizer.config import TokenizerSettings
from tidemill_tokenizer.servicer import TokenizerService

if __name__ == "__main__":
    server.run("tokenizer", TokenizerSettings.read, lambda: TokenizerService(TokenizerSettings.read()))
