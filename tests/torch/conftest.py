import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
# Ranks are forked: no thread of OpenMP may exist before.
os.environ.setdefault("OMP_NUM_THREADS", "1")
