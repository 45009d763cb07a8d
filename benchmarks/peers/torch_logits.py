#!/usr/bin/env python3
"""Compares logits written by `dump_logits DIR` with PyTorch's for the same weights.

  bazel run //benchmarks/serve/llama:dump_logits -- DIR [--model=1b]
  python3 benchmarks/peers/torch_logits.py DIR [--device=cuda]

DIR holds the files of a Hugging Face Llama model, prompts, and the logits that the program computed
at the last position of each:

  config.json        hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads,
                     intermediate_size, vocab_size, rms_norm_eps, rope_theta, head_dim
  model.safetensors  the weights, under Hugging Face's names, in float32 or bf16
  tokens.json        {"prompts": [[token, ...], ...]}
  logits.json        {"logits": [[one float of each token of the vocabulary], ...]}

The reference is transformers' LlamaForCausalLM if it can be imported, and otherwise the same
arithmetic in plain PyTorch, in float32. A difference is the largest one of a prompt's logits,
divided by the standard deviation of the reference's. It may be 1e-3 if the weights are in float32;
otherwise twice the difference of the reference itself when it is computed in bf16.

The exit status is 0 if each prompt's difference is within its limit, 1 if one is not, and 2 if
the comparison was not made.
"""

import argparse
import json
import math
import pathlib
import struct
import sys
import traceback

FLOAT32_LIMIT = 1e-3
BF16_TIMES = 2.0
SELF_LIMIT = 1e-4  # between transformers' arithmetic and that of this file, in float32
NUMBERS = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
           "intermediate_size", "vocab_size", "rms_norm_eps", "rope_theta", "head_dim")


class Unusable(Exception):
    """The data cannot be compared."""


# The contents of the directory.


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from error


def read_config(path):
    config = read_json(path)
    missing = [name for name in NUMBERS if not isinstance(config.get(name), (int, float))]
    if missing:
        raise Unusable(f"{path} has no number {', '.join(missing)}")
    return config


def read_safetensors(torch, path):
    """The tensors of a file by their names, and the types of data that occur."""
    types = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
    try:
        data = bytearray(path.read_bytes())
        size, = struct.unpack_from("<Q", data)
        header = json.loads(data[8:8 + size].decode("utf-8"))
    except (OSError, ValueError, struct.error) as error:
        raise Unusable(f"{path}: {error}") from error
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        if entry["dtype"] not in types:
            raise Unusable(f"{path}: {name} is of type {entry['dtype']}, not one of "
                           f"{', '.join(types)}")
        begin, end = entry["data_offsets"]
        dtype = types[entry["dtype"]]
        count = math.prod(entry["shape"])
        if end - begin != count * dtype.itemsize or 8 + size + end > len(data):
            raise Unusable(f"{path}: {name} of shape {entry['shape']} has bytes {begin} to {end} "
                           f"of {len(data) - 8 - size}")
        if (8 + size + begin) % dtype.itemsize:  # frombuffer() requires alignment
            flat = torch.frombuffer(bytearray(data[8 + size + begin:8 + size + end]), dtype=dtype)
        else:
            flat = torch.frombuffer(data, dtype=dtype, count=count, offset=8 + size + begin)
        tensors[name] = flat.reshape(entry["shape"])
    return tensors, {entry["dtype"] for entry in header.values()}


def shapes_of(config):
    hidden, ffn, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries = config["num_attention_heads"] * head
    keys = config["num_key_value_heads"] * head
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden],
              "model.norm.weight": [hidden],
              "lm_head.weight": [config["vocab_size"], hidden]}
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes |= {layer + "self_attn.q_proj.weight": [queries, hidden],
                   layer + "self_attn.k_proj.weight": [keys, hidden],
                   layer + "self_attn.v_proj.weight": [keys, hidden],
                   layer + "self_attn.o_proj.weight": [hidden, queries],
                   layer + "mlp.gate_proj.weight": [ffn, hidden],
                   layer + "mlp.up_proj.weight": [ffn, hidden],
                   layer + "mlp.down_proj.weight": [hidden, ffn],
                   layer + "input_layernorm.weight": [hidden],
                   layer + "post_attention_layernorm.weight": [hidden]}
    return shapes


def check_weights(config, weights):
    shapes = shapes_of(config)
    if config.get("tie_word_embeddings") and "lm_head.weight" not in weights:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    wrong = [f"{name} is missing" for name in shapes if name not in weights]
    wrong += [f"{name} is not known" for name in weights if name not in shapes]
    wrong += [f"{name} is {list(weights[name].shape)}, not {shape}"
              for name, shape in shapes.items()
              if name in weights and list(weights[name].shape) != shape]
    if wrong:
        raise Unusable("model.safetensors: " + "; ".join(wrong[:5]))


def read_prompts(folder, config):
    """Pairs of a prompt's tokens and its logits."""
    prompts = read_json(folder / "tokens.json").get("prompts", [])
    logits = read_json(folder / "logits.json").get("logits", [])
    if not prompts or len(prompts) != len(logits):
        raise Unusable(f"{len(prompts)} prompts and the logits of {len(logits)}")
    vocabulary = config["vocab_size"]
    for i, (tokens, row) in enumerate(zip(prompts, logits)):
        if not tokens or not all(0 <= token < vocabulary for token in tokens):
            raise Unusable(f"prompt {i} is empty or has a token outside 0 to {vocabulary - 1}")
        if len(row) != vocabulary:
            raise Unusable(f"prompt {i} has {len(row)} logits for {vocabulary} tokens")
    return list(zip(prompts, logits))


# The reference. A model is a function from tokens to the logits of the last position.


def plain_model(torch, config, weights, dtype, device):
    """The arithmetic of LlamaForCausalLM, operation by operation."""
    functional = torch.nn.functional
    weights = {name: weight.to(device, dtype) for name, weight in weights.items()}
    size = config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def norm(x, weight):
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + config["rms_norm_eps"])
        return weight * (wide * scale).to(dtype)

    def rotate(x, cosines, sines):
        lower, upper = x.chunk(2, -1)
        return x * cosines + torch.cat([-upper, lower], -1) * sines

    def attend(x, name, cosines, sines):
        count = x.shape[0]

        def project(part, parts):
            weight = weights[f"{name}{part}_proj.weight"]
            return functional.linear(x, weight).view(count, parts, size).transpose(0, 1)

        queries = rotate(project("q", heads), cosines, sines)
        keys = rotate(project("k", kv_heads), cosines, sines)
        keys = keys.repeat_interleave(heads // kv_heads, 0)
        values = project("v", kv_heads).repeat_interleave(heads // kv_heads, 0)
        scores = queries @ keys.transpose(1, 2) * size ** -0.5
        later = torch.ones(count, count, dtype=torch.bool, device=device).triu(1)
        scores = scores.masked_fill(later, -math.inf)
        shares = torch.softmax(scores, -1, dtype=torch.float32).to(dtype)
        mixed = (shares @ values).transpose(0, 1).reshape(count, heads * size)
        return functional.linear(mixed, weights[name + "o_proj.weight"])

    def feed_forward(x, name):
        gate = functional.silu(functional.linear(x, weights[name + "gate_proj.weight"]))
        up = functional.linear(x, weights[name + "up_proj.weight"])
        return functional.linear(gate * up, weights[name + "down_proj.weight"])

    def logits(tokens):
        x = functional.embedding(torch.tensor(tokens, device=device),
                                 weights["model.embed_tokens.weight"])
        positions = torch.arange(len(tokens), device=device).float()
        angles = torch.outer(positions, inverse_frequencies(torch, config).to(device))
        angles = torch.cat([angles, angles], -1)
        cosines, sines = angles.cos().to(dtype), angles.sin().to(dtype)
        for i in range(config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            normal = norm(x, weights[layer + "input_layernorm.weight"])
            x = x + attend(normal, layer + "self_attn.", cosines, sines)
            normal = norm(x, weights[layer + "post_attention_layernorm.weight"])
            x = x + feed_forward(normal, layer + "mlp.")
        last = norm(x[-1:], weights["model.norm.weight"])
        return functional.linear(last, weights["lm_head.weight"])[0].float()

    return logits


def inverse_frequencies(torch, config):
    size = config["head_dim"]
    return config["rope_theta"] ** -(torch.arange(0, size, 2).float() / size)


def transformers_model(torch, config, weights, dtype, device):
    from transformers import LlamaConfig, LlamaForCausalLM
    theta = float(config["rope_theta"])
    known = {name: config[name] for name in NUMBERS if name not in ("rope_theta", "rms_norm_eps")}
    with torch.device(device):
        model = LlamaForCausalLM(LlamaConfig(
            **known, rms_norm_eps=float(config["rms_norm_eps"]), rope_theta=theta,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            max_position_embeddings=1 << 20, tie_word_embeddings=False, attention_bias=False,
            mlp_bias=False))
    # Versions of transformers differ in the place of the base of the positions.
    theirs = model.model.rotary_emb.inv_freq.float().cpu()
    if not torch.allclose(theirs, inverse_frequencies(torch, config), rtol=1e-4, atol=0):
        raise Unusable("transformers does not take rope_theta")
    # The frequencies stay in float32: only parameters are converted.
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    missing, unknown = model.load_state_dict(weights, strict=False)
    if missing or unknown:
        raise Unusable(f"transformers misses {missing} and does not know {unknown}")
    model.eval()

    def logits(tokens):
        ids = torch.tensor([tokens], device=device)
        return model(input_ids=ids, use_cache=False).logits[0, -1].float()

    return logits


def run_model(torch, make, config, weights, dtype, device, prompts):
    """The logits of each prompt; the model is freed before the next one is made."""
    model = make(torch, config, weights, dtype, device)
    with torch.inference_mode():
        return [model(tokens).cpu() for tokens, _ in prompts]


def transformers_version():
    try:
        import transformers
        return transformers.__version__
    except ImportError:
        return None


# The comparison.


def difference(ours, theirs):
    """The largest difference, divided by the standard deviation of `theirs`."""
    return ((ours - theirs).abs().max() / theirs.std()).item()


def choose(torch, which, config, weights, device, prompts):
    """The function that makes the reference, and its logits in float32."""
    version = transformers_version()
    if which == "transformers" and version is None:
        raise Unusable("transformers cannot be imported")
    if which == "plain" or version is None:
        print("reference: plain PyTorch " + torch.__version__)
        return plain_model, run_model(torch, plain_model, config, weights, torch.float32, device,
                                      prompts)
    exact = run_model(torch, transformers_model, config, weights, torch.float32, device, prompts)
    plain = run_model(torch, plain_model, config, weights, torch.float32, device, prompts)
    apart = max(difference(a, b) for a, b in zip(plain, exact))
    print(f"reference: LlamaForCausalLM of transformers {version}, PyTorch {torch.__version__}; "
          f"plain PyTorch differs from it by {apart:.2e}")
    if not apart <= SELF_LIMIT:
        raise Unusable(f"the two references differ by more than {SELF_LIMIT}")
    return transformers_model, exact


def compare(torch, arguments):
    """Prints a line for each prompt; returns whether each is within its limit."""
    folder = arguments.directory
    config = read_config(folder / "config.json")
    weights, types = read_safetensors(torch, folder / "model.safetensors")
    check_weights(config, weights)
    prompts = read_prompts(folder, config)
    print(f"{folder.name}: {config['num_hidden_layers']} layers of {config['hidden_size']}, "
          f"weights in {'/'.join(sorted(types))}, {len(prompts)} prompts")
    make, exact = choose(torch, arguments.reference, config, weights, arguments.device, prompts)
    rounded = run_model(torch, make, config, weights, torch.bfloat16, arguments.device, prompts)
    all_within = True
    for i, (tokens, row) in enumerate(prompts):
        ours = torch.tensor(row, dtype=torch.float32)
        apart = difference(ours, exact[i])
        bf16 = difference(rounded[i], exact[i])
        limit = FLOAT32_LIMIT if types == {"F32"} else BF16_TIMES * bf16
        within = apart <= limit  # false for NaN
        all_within &= within
        same = "the same" if int(ours.argmax()) == int(exact[i].argmax()) else "another"
        print(f"prompt {i}: {len(tokens)} tokens, difference {apart:.2e} of a deviation, bf16's "
              f"own {bf16:.2e}, limit {limit:.2e}, {same} likeliest token: "
              f"{'within' if within else 'NOT WITHIN'}")
    return all_within


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--reference", choices=["auto", "transformers", "plain"], default="auto",
                        help="what computes the reference (default: transformers if it is there)")
    return parser.parse_args()


def unusable(message):
    print(f"torch_logits.py: {message}", file=sys.stderr)
    sys.exit(2)


def main():
    arguments = parse()
    try:
        import torch
    except ImportError as error:
        unusable(f"PyTorch is missing: {error}")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        unusable("there is no GPU that PyTorch can use; --device=cpu needs none")
    torch.set_float32_matmul_precision("highest")
    try:
        within = compare(torch, arguments)
    except Unusable as error:
        unusable(error)
    except Exception as error:  # not 1, which means that the logits differ
        traceback.print_exc()
        unusable(f"{type(error).__name__}: {error}")
    print("the logits agree" if within else "the logits differ")
    sys.exit(0 if within else 1)


if __name__ == "__main__":
    main()
