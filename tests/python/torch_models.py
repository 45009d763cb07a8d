"""Models of transformers, timm and torchvision with random weights, from small configurations: nothing is
downloaded. For torch_models_run.py and torch_training_run.py.

make(source, name, device) returns a Subject. Models of transformers that generate have three names:
"llama" is the forward pass, "llama:static" and "llama:dynamic" are generate() with these caches.
"""

import dataclasses
import importlib
import importlib.util
import typing

import torch

SOURCES = {"transformers": ("transformers",), "timm": ("timm", "torchvision"),
           "torchvision": ("torchvision",)}
VOCABULARY = 99
LENGTH = 12  # tokens per input
NEW_TOKENS = 8


@dataclasses.dataclass
class Subject:
    """`inputs(i)`: the arguments of call i, which are new tensors with the same values in each process.
    `bind(compiler)`: returns a function of these arguments, with the module or its forward pass compiled.
    """

    module: torch.nn.Module
    inputs: typing.Callable
    bind: typing.Callable = None

    def __post_init__(self):
        self.bind = self.bind or self._bind

    def _bind(self, compiler):
        call = compiler(self.module)
        return lambda inputs: call(**inputs) if isinstance(inputs, dict) else call(*inputs)


def absent(source):
    """Returns the name of a required package that is missing, or None."""
    return next((name for name in SOURCES[source] if importlib.util.find_spec(name) is None), None)


def names(source):
    """Returns the names of all models of a source, small models first."""
    if source != "transformers":
        return list({"timm": TIMM, "torchvision": TORCHVISION}[source])
    return [*TRANSFORMERS, *[f"{name}:{cache}" for name in GENERATE for cache in GENERATE[name]]]


def preload(source):
    """Imports the packages of a source."""
    if source == "transformers":
        import transformers
        transformers.AutoConfig.for_model("bert")
        for name in ("MaskedLM", "CausalLM", "Seq2SeqLM", "ImageClassification"):
            getattr(transformers, f"AutoModelFor{name}")
    else:
        importlib.import_module(source)


def make(source, name, device, seed):
    """Returns a Subject whose weights and inputs depend on the seed."""
    torch.manual_seed(seed)
    build = {"transformers": _transformers, "timm": _timm, "torchvision": _torchvision}[source]
    subject = build(name)
    randomize(subject.module, seed)
    subject.module.to(device)
    return dataclasses.replace(subject, inputs=_on(subject.inputs, device, seed))


def randomize(module, seed):
    """Fills all weights with random values, because many models begin with zeros in places."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.is_floating_point() and weight.numel():
                noise = torch.randn(weight.shape, generator=generator).to(weight.dtype)
                weight.add_(noise * 0.02)


def _on(inputs, device, seed):
    def of_call(number):
        generator = torch.Generator().manual_seed(seed * 1000 + number)
        return _to(inputs(generator), device)
    return of_call


def _to(value, device):
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, dict):
        return {key: _to(item, device) for key, item in value.items()}
    return [_to(item, device) for item in value] if isinstance(value, (list, tuple)) else value


def _ids(generator, rows=2, length=LENGTH):
    return torch.randint(3, VOCABULARY, (rows, length), generator=generator)


def _mask(generator, rows=2, length=LENGTH):
    """Returns a mask with padding on the right, of another length in each row. Each mask has padding, because models
    take other paths without any.
    """
    lengths = torch.randint(length // 2, length, (rows, 1), generator=generator)
    return (torch.arange(length) < lengths).long()


def _image(generator, size, channels=3, rows=2):
    return torch.randn(rows, channels, size, size, generator=generator)


# ---- transformers ----

# Sizes that most configurations have; each configuration takes the ones that it knows.
SMALL = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128, "ffn_dim": 128,
    "max_position_embeddings": 128, "embedding_size": 32, "d_model": 64, "d_ff": 128, "d_kv": 16,
    "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4, "encoder_layers": 2,
    "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32, "num_experts": 4, "num_local_experts": 4,
    "num_experts_per_tok": 2, "word_embed_proj_dim": 64, "sliding_window": 8, "image_size": 32,
    "patch_size": 8, "type_vocab_size": 2,
}

TEXT, MASKED, SEQUENCES = "causal", "encoder", "sequences"
VISION, AUDIO = "vision", "audio"

# By name: the kind of inputs, the automatic class, and additional sizes; a size None is left out.
TRANSFORMERS = {
    "bert": (MASKED, "MaskedLM", {}),
    "roberta": (MASKED, "MaskedLM", {}),
    "distilbert": (MASKED, "MaskedLM", {"dim": 64, "hidden_dim": 128, "n_layers": 2, "n_heads": 4}),
    "albert": (MASKED, "MaskedLM", {}),
    "electra": (MASKED, "MaskedLM", {}),
    "xlm-roberta": (MASKED, "MaskedLM", {}),
    "camembert": (MASKED, "MaskedLM", {}),
    "mpnet": (MASKED, "MaskedLM", {}),
    "deberta": (MASKED, "MaskedLM", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "deberta-v2": (MASKED, "MaskedLM", {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}),
    "mobilebert": (MASKED, "MaskedLM", {"intra_bottleneck_size": 32, "true_hidden_size": 32}),
    "squeezebert": (MASKED, "MaskedLM", {"embedding_size": 64}),
    "convbert": (MASKED, "MaskedLM", {}),
    "roformer": (MASKED, "MaskedLM", {}),
    "rembert": (MASKED, "MaskedLM", {"input_embedding_size": 32, "output_embedding_size": 32}),
    "megatron-bert": (MASKED, "MaskedLM", {}),
    "modernbert": (MASKED, "MaskedLM", {"local_attention": 8}),
    "fnet": ("ids", "MaskedLM", {"tpu_short_seq_length": LENGTH}),
    "longformer": (MASKED, "MaskedLM", {"attention_window": 4}),
    "big_bird": (MASKED, "MaskedLM", {"attention_type": "original_full"}),
    "funnel": (MASKED, "MaskedLM", {"num_hidden_layers": None, "block_sizes": [1, 1], "n_head": 4,
                                    "d_head": 16, "d_inner": 128}),
    "xlnet": (MASKED, "CausalLM", {"max_position_embeddings": None, "d_inner": 128, "d_head": 16,
                                     "num_attention_heads": None, "n_head": 4}),
    "esm": (MASKED, "MaskedLM", {"position_embedding_type": "rotary"}),
    "gpt2": (TEXT, "CausalLM", {"n_positions": 128}),
    "gpt_neo": (TEXT, "CausalLM", {"attention_types": [[["global", "local"], 1]], "window_size": 8}),
    "gpt_neox": (TEXT, "CausalLM", {}),
    "gptj": (TEXT, "CausalLM", {"n_positions": 128, "rotary_dim": 8}),
    "codegen": (TEXT, "CausalLM", {"n_positions": 128, "rotary_dim": 8}),
    "gpt_bigcode": (TEXT, "CausalLM", {"n_positions": 128}),
    "opt": (TEXT, "CausalLM", {}),
    "bloom": (TEXT, "CausalLM", {}),
    "falcon": (TEXT, "CausalLM", {"head_dim": None}),
    "mpt": (TEXT, "CausalLM", {"n_layers": 2, "n_heads": 4, "max_seq_len": 128}),
    "llama": (TEXT, "CausalLM", {}),
    "mistral": (TEXT, "CausalLM", {}),
    "mixtral": (TEXT, "CausalLM", {}),
    "gemma": (TEXT, "CausalLM", {}),
    "gemma2": (TEXT, "CausalLM", {}),
    "gemma3_text": (TEXT, "CausalLM", {"layer_types": ["sliding_attention", "full_attention"]}),
    "qwen2": (TEXT, "CausalLM", {}),
    "qwen2_moe": (TEXT, "CausalLM", {}),
    "qwen3": (TEXT, "CausalLM", {}),
    "qwen3_moe": (TEXT, "CausalLM", {}),
    "phi": (TEXT, "CausalLM", {}),
    "phi3": (TEXT, "CausalLM", {}),
    "stablelm": (TEXT, "CausalLM", {}),
    "starcoder2": (TEXT, "CausalLM", {}),
    "olmo": (TEXT, "CausalLM", {}),
    "olmo2": (TEXT, "CausalLM", {}),
    "olmoe": (TEXT, "CausalLM", {}),
    "cohere": (TEXT, "CausalLM", {}),
    "granite": (TEXT, "CausalLM", {}),
    "granitemoe": (TEXT, "CausalLM", {}),
    "gpt_oss": (TEXT, "CausalLM", {"layer_types": ["sliding_attention", "full_attention"]}),
    "smollm3": (TEXT, "CausalLM", {}),
    "mamba": (TEXT, "CausalLM", {"state_size": 8, "time_step_rank": 4}),
    "t5": (SEQUENCES, "Seq2SeqLM", {}),
    "bart": (SEQUENCES, "Seq2SeqLM", {}),
    "marian": (SEQUENCES, "Seq2SeqLM", {"decoder_vocab_size": VOCABULARY}),
    "pegasus": (SEQUENCES, "Seq2SeqLM", {}),
    "m2m_100": (SEQUENCES, "Seq2SeqLM", {}),
    "whisper": ("speech", "SpeechSeq2Seq", {"num_mel_bins": 16, "max_source_positions": 20,
                                            "max_target_positions": 64}),
    "vit": (VISION, "ImageClassification", {}),
    "beit": (VISION, "ImageClassification", {}),
    "dinov2": (VISION, "ImageClassification", {}),
    "swin": (VISION, "ImageClassification", {
        "patch_size": 4, "embed_dim": 32, "depths": [1, 1], "num_heads": [2, 4], "window_size": 4,
        "num_attention_heads": None, "num_hidden_layers": None, "num_layers": None,
        "hidden_size": None}),
    "convnext": (VISION, "ImageClassification", {"hidden_sizes": [16, 32], "depths": [1, 1],
                                                 "num_stages": 2, "patch_size": 4}),
    "resnet": (VISION, "ImageClassification", {"hidden_sizes": [16, 32], "depths": [1, 1],
                                               "embedding_size": 16}),
    "segformer": (VISION, "SemanticSegmentation", {
        "num_attention_heads": [1, 2, 2, 4], "hidden_sizes": [16, 16, 32, 32], "depths": [1, 1, 1, 1]}),
    "clip": ("pair", "", {"text_config": {"hidden_size": 64, "intermediate_size": 128,
                                          "num_hidden_layers": 2, "num_attention_heads": 4,
                                          "vocab_size": VOCABULARY, "eos_token_id": 2},
                          "vision_config": {"hidden_size": 64, "intermediate_size": 128,
                                            "num_hidden_layers": 2, "num_attention_heads": 4,
                                            "image_size": 32, "patch_size": 8}}),
    "wav2vec2": (AUDIO, "CTC", {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3],
                                "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}),
    "hubert": (AUDIO, "CTC", {"conv_dim": [16, 16], "conv_stride": [5, 2], "conv_kernel": [10, 3],
                              "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}),
}
BOTH = ("static", "dynamic")
GENERATE = {name: BOTH for name in (
    "gpt2", "llama", "qwen2", "gemma", "gemma2", "gemma3_text", "mistral", "mixtral", "qwen2_moe",
    "phi3", "opt", "olmo2", "granite", "gpt_oss", "t5")}


def _transformers(name):
    import transformers
    transformers.logging.set_verbosity_error()
    name, _, cache = name.partition(":")
    kind, head, sizes = TRANSFORMERS[name]
    known = transformers.AutoConfig.for_model(name)
    small = {key: value for key, value in SMALL.items() if hasattr(known, key)}
    sizes = {key: value for key, value in {**small, **sizes}.items() if value is not None}
    config = type(known)(**sizes)
    if not head:
        model = transformers.AutoModel.from_config(config)
    else:
        model = getattr(transformers, f"AutoModelFor{head}").from_config(config)
    model.eval()
    if cache:
        model.generation_config.decoder_start_token_id = 1
        return Subject(model, _prompts, _generate(model, cache))
    return Subject(model, _INPUTS[kind])


_INPUTS = {
    TEXT: lambda g: {"input_ids": _ids(g)},
    "ids": lambda g: {"input_ids": _ids(g)},
    MASKED: lambda g: {"input_ids": _ids(g), "attention_mask": _mask(g)},
    SEQUENCES: lambda g: {"input_ids": _ids(g), "attention_mask": _mask(g),
                          "decoder_input_ids": _ids(g, length=7)},
    VISION: lambda g: {"pixel_values": _image(g, 32)},
    AUDIO: lambda g: {"input_values": torch.randn(2, 400, generator=g)},
    "speech": lambda g: {"input_features": torch.randn(2, 16, 40, generator=g),
                         "decoder_input_ids": _ids(g, length=7)},
    "pair": lambda g: {"input_ids": _ids(g), "pixel_values": _image(g, 32)},
}


def _prompts(generator):
    return {"input_ids": _ids(generator), "attention_mask": _mask(generator).flip(1)}


def _generate(model, cache):
    """Returns Subject.bind() of a model that generates with a compiled forward pass."""
    options = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS, "do_sample": False,
               "disable_compile": True, "return_dict_in_generate": True, "output_logits": True}
    if cache == "static":
        options["cache_implementation"] = "static"

    def bind(compiler):
        forward = compiler(model.forward)

        def run(inputs):
            model.forward = forward
            try:
                made = model.generate(**inputs, **options)
            finally:
                del model.forward
            return {"sequences": made.sequences, "logits": made.logits}

        return run

    return bind


# ---- timm ----

# By name: options of create_model(), and the width of an image if it is not 64.
TIMM = {
    "resnet18": {}, "resnet26d": {}, "resnetv2_50": {}, "seresnet18": {} , "resnext26ts": {},
    "ecaresnet26t": {}, "res2net50_26w_4s": {}, "resnest14d": {}, "skresnet18": {}, "gernet_s": {},
    "regnetx_002": {}, "regnety_002": {}, "regnetz_b16": {}, "densenet121": {}, "dla34": {},
    "dpn48b": {}, "cspresnet50": {}, "cspdarknet53": {}, "darknet17": {}, "vovnet39a": {},
    "hrnet_w18_small": {}, "mobilenetv2_050": {}, "mobilenetv3_small_050": {},
    "mobilenetv4_conv_small": {}, "mnasnet_small": {}, "fbnetc_100": {}, "spnasnet_100": {},
    "efficientnet_b0": {}, "tf_efficientnetv2_b0": {}, "mixnet_s": {}, "ghostnet_050": {},
    "ghostnetv2_100": {}, "lcnet_050": {}, "tinynet_e": {}, "rexnet_100": {}, "repvgg_a0": {},
    "mobileone_s0": {}, "hardcorenas_a": {}, "selecsls42b": {}, "xception41": {},
    "inception_v3": {"size": 96}, "convnext_atto": {}, "convnextv2_atto": {},
    "inception_next_atto": {}, "convmixer_768_32": {}, "poolformer_s12": {}, "edgenext_xx_small": {},
    "fastvit_t8": {}, "repvit_m0_9": {}, "starnet_s1": {}, "hgnetv2_b0": {},
    "vit_tiny_patch16_224": {"img_size": 64}, "deit_tiny_distilled_patch16_224": {"img_size": 64},
    "beit_base_patch16_224": {"img_size": 64, "depth": 2}, "cait_xxs24_224": {"img_size": 64},
    "xcit_nano_12_p16_224": {}, "swin_tiny_patch4_window7_224": {"img_size": 224, "depths": (1, 1, 1, 1)},
    "swinv2_tiny_window8_256": {"img_size": 128, "depths": (1, 1, 1, 1)},
    "pvt_v2_b0": {}, "twins_svt_small": {"img_size": 64}, "levit_128s": {"size": 224},
    "mixer_s16_224": {"img_size": 64}, "resmlp_12_224": {"img_size": 64},
    "gmlp_ti16_224": {"img_size": 64}, "coat_tiny": {"img_size": 64}, "convit_tiny": {"img_size": 64},
    "crossvit_9_240": {"size": 240}, "pit_ti_224": {"img_size": 64}, "tnt_s_patch16_224": {"img_size": 64},
    "mobilevit_xxs": {}, "efficientformer_l1": {"size": 224}, "eva02_tiny_patch14_224": {"img_size": 56},
    "maxvit_rmlp_pico_rw_256": {"size": 256}, "visformer_tiny": {"img_size": 64},
    "nest_tiny": {"img_size": 64}, "davit_tiny": {"size": 224, "depths": (1, 1, 1, 1)},
    "hiera_tiny_224": {"size": 224}, "volo_d1_224": {"img_size": 64},
}


def _timm(name):
    import timm
    options = dict(TIMM.get(name, {}))
    size = options.pop("size", options.get("img_size", 64))
    model = timm.create_model(name, pretrained=False, num_classes=10, **options).eval()
    return Subject(model, lambda generator: [_image(generator, size)])


# ---- torchvision ----

SHAPES = "detector"  # the input is a list of images of several shapes, not a batch
_RCNN = {"min_size": 64, "max_size": 96, "num_classes": 4, "weights_backbone": None,
         "box_score_thresh": 0.2, "box_detections_per_img": 8, "rpn_post_nms_top_n_test": 20}
_ONE_STAGE = {"min_size": 64, "max_size": 96, "num_classes": 4, "weights_backbone": None,
              "score_thresh": 0.2, "detections_per_img": 8}
_SEGMENTS = {"weights_backbone": None, "num_classes": 4}
TORCHVISION = {
    "resnet18": (64, {}), "mobilenet_v3_small": (64, {}), "shufflenet_v2_x0_5": (64, {}),
    "squeezenet1_1": (64, {}), "mnasnet0_5": (64, {}), "efficientnet_b0": (64, {}),
    "regnet_y_400mf": (64, {}), "densenet121": (64, {}), "googlenet": (64, {"init_weights": False}),
    "convnext_tiny": (64, {}), "swin_t": (64, {}), "vit_b_32": (64, {"image_size": 64}),
    "lraspp_mobilenet_v3_large": (64, _SEGMENTS), "deeplabv3_mobilenet_v3_large": (64, _SEGMENTS),
    "r3d_18": ("video", {}), "raft_small": ("flow", {}),
    "ssdlite320_mobilenet_v3_large": (SHAPES, {"weights_backbone": None, "num_classes": 4,
                                               "score_thresh": 0.2, "detections_per_img": 8}),
    "fasterrcnn_mobilenet_v3_large_320_fpn": (SHAPES, _RCNN),
    "retinanet_resnet50_fpn": (SHAPES, _ONE_STAGE), "fcos_resnet50_fpn": (SHAPES, _ONE_STAGE),
    "maskrcnn_resnet50_fpn": (SHAPES, _RCNN), "keypointrcnn_resnet50_fpn": (SHAPES, {
        **_RCNN, "num_classes": 2, "num_keypoints": 4}),
}


def _torchvision(name):
    import torchvision
    kind, options = TORCHVISION.get(name, (64, {}))
    model = torchvision.models.get_model(name, weights=None, **options).eval()
    shapes = {"video": [(1, 3, 4, 32, 32)], "flow": [(1, 3, 128, 128)] * 2}.get(
        kind, [(2, 3, kind, kind)])

    def inputs(generator):
        if kind == SHAPES:
            return [[torch.rand(3, 64, 80, generator=generator),
                     torch.rand(3, 72, 64, generator=generator)]]
        return [torch.randn(*shape, generator=generator) for shape in shapes]

    return Subject(model, inputs)
