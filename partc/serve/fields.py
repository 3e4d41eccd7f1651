"""Fields of requests that this server does not have → the values that change nothing, and the reason.

Clients send many fields always, at values that switch off what they name. Such a value passes; any other one is
refused with the reason, so that an answer is always what was asked for. `--ignore-unknown-fields` ignores those of
other servers, and fields that nobody knows; what OpenAI's API promises (`OPENAI`) is refused all the same.

A neutral value is a value, a type all of whose values change nothing, or another field that says the same (`Same`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Same:
    """The value of another field of the body, the first of these that is there."""

    names: tuple[str, ...]

    def matches(self, value: object, body: Body) -> bool:
        """Whether it says the same, or nothing where nothing is said."""
        given = next((body[name] for name in self.names if body.get(name) is not None), None)
        return _equal(value, given) or (given is None and value in ([], ""))


@dataclass(frozen=True)
class Absent:
    """A field that this server does not have."""

    neutral: tuple[object, ...]
    """Besides null."""
    why: str

    def allows(self, value: object, body: Body) -> bool:
        """Whether this value changes nothing."""
        return value is None or any(_matches(value, one, body) for one in self.neutral)


def _matches(value: object, neutral: object, body: Body) -> bool:
    if isinstance(neutral, Same):
        return neutral.matches(value, body)
    if isinstance(neutral, type):
        return isinstance(value, neutral) and (neutral is bool or not isinstance(value, bool))
    return _equal(value, neutral)


def _equal(one: object, other: object) -> bool:
    """Equality that does not take true for 1, and takes a text for a list of it alone."""
    one, other = ([each] if isinstance(each, str) else each for each in (one, other))
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _table(*rows: tuple[str, Sequence[object], str]) -> dict[str, Absent]:
    """A table of (names, neutral values, reason); several names are parted by spaces."""
    return {name: Absent(tuple(neutral), why) for names, neutral, why in rows for name in names.split()}


_PENALTY = "this server has no penalties; leave it out, or give the value that is none"
_SAMPLER = "this server chooses by temperature, top_k and top_p alone; leave it out, or switch it off"
_OFF = "it belongs to a way of choosing tokens that this server does not have"
_END = "this server ends answers at end tokens and stop texts; leave it out"
_BAN = "this server cannot favour or forbid tokens; leave it out"
_FORM = "this server cannot constrain the form of an answer; leave it out, and ask for JSON in the prompt"
_TEXT = "this server answers with text alone"
_NOTE = "this server notes it nowhere"
_TOLD = "this server does not tell it; leave it out"
_NAMED = "give max_tokens"
_TIME = "the time of a request is the server's --timeout; leave it out"

OPENAI = _table(
    ("frequency_penalty presence_penalty", (0,), _PENALTY),
    ("logit_bias", ({}, []), _BAN),
    ("tool_choice", ("none", "auto"), 'this server cannot force a call; give "auto", and the model decides'),
    ("parallel_tool_calls", (bool,), "the model decides"),
    ("response_format", ({"type": "text"},), _FORM),
    ("functions", ([],), "deprecated by OpenAI: give `tools`"),
    ("function_call", ("none", "auto"), "deprecated by OpenAI: give `tools`"),
    ("modalities", (["text"],), _TEXT),
    ("audio", (), _TEXT),
    ("moderation", (), "this server moderates nothing; leave it out"),
    ("web_search_options", (), "this server searches nothing; leave it out"),
    ("reasoning_effort", (), "give what the model's template takes in chat_template_kwargs"),
    ("verbosity", ("medium",), "this server cannot control it; ask for a short answer in the prompt"),
    ("store", (False,), "this server keeps no answers"),
    ("service_tier", ("auto", "default"), "this server has one tier"),
    ("metadata", (dict,), _NOTE),
    ("user safety_identifier prompt_cache_key prompt_cache_retention", (str,), _NOTE),
    ("prompt_cache_options", (dict,), _NOTE),
    ("echo", (False,), "this server does not repeat the prompt; leave it out"),
    ("suffix", ("",), "this server does not fill gaps; leave it out"),
    ("best_of", (1,), "this server returns all answers that it makes; give n"),
)
"""Fields of OpenAI's API."""

OTHERS = _table(
    ("min_p top_a smoothing_factor skew penalty_alpha", (0,), _SAMPLER),
    ("typical_p typical typ_p tfs tfs_z guidance_scale", (1,), _SAMPLER),
    ("top_n_sigma nsigma adaptive_target", (0, -1, -0.01), _SAMPLER),
    ("epsilon_cutoff eta_cutoff", (0,), _SAMPLER),
    ("xtc_probability mirostat mirostat_mode dynatemp_range", (0,), _SAMPLER),
    ("dynamic_temperature temperature_last use_beam_search early_stopping", (False,), _SAMPLER),
    ("do_sample", (True,), "give temperature 0 for the likeliest token"),
    ("num_beams beam_width", (1,), _SAMPLER),
    ("samplers sampler_order sampler_priority", ([], ""), "the order here is temperature, top_k, top_p"),
    ("xtc_threshold mirostat_tau mirostat_eta smoothing_curve adaptive_decay", (int, float), _OFF),
    ("dynatemp_low dynatemp_high dynatemp_min dynatemp_max dynatemp_mode dynatemp_exponent", (int, float), _OFF),
    ("negative_prompt", ("",), _SAMPLER),
    ("repetition_penalty repeat_penalty rep_pen encoder_repetition_penalty length_penalty", (1,), _PENALTY),
    ("no_repeat_ngram_size dry_multiplier", (0,), _PENALTY),
    ("repeat_last_n rep_pen_range repetition_penalty_range rep_pen_slope repetition_decay", (int, float), _OFF),
    ("dry_base dry_allowed_length dry_penalty_last_n", (int, float), _OFF),
    ("dry_sequence_breakers", (list, str), _OFF),
    ("sampler_seed", (Same(("seed",)), -1), "give seed"),
    ("ignore_eos ban_eos_token include_stop_str_in_output", (False,), _END),
    ("trim_stop", (True,), _END),
    ("min_tokens min_length min_new_tokens max_tokens_second", (0,), _END),
    ("stop_token_ids", ([],), "give stop, with texts"),
    ("stopping_strings stop_sequence", (Same(("stop",)),), "give stop"),
    ("max_new_tokens n_predict num_predict max_length", (Same(("max_tokens", "max_completion_tokens")), -1), _NAMED),
    ("truncation_length num_ctx n_ctx max_context_length", (int,), "the room is that of the build"),
    ("truncate_prompt_tokens", (-1,), "this server cuts no prompts; send less"),
    ("n_keep n_discard num_keep", (int,), "this server cuts no prompts"),
    ("num_batch num_thread num_gpu", (int,), "the build says who computes what"),
    ("use_mmap use_mlock", (bool,), "the build says who computes what"),
    ("custom_token_bans banned_tokens", ("", []), _BAN),
    ("banned_strings bad_words allowed_token_ids logits_processors lora", ([],), _BAN),
    ("grammar grammar_string", ("",), _FORM),
    ("grammar_lazy grammar_retain_state", (False,), _FORM),
    ("json_schema", ({},), _FORM),
    ("guided_json guided_regex guided_choice guided_grammar structured_outputs regex ebnf", (), _FORM),
    ("cache_prompt", (True,), "give deterministic: true, which uses no rows of earlier requests"),
    ("keep_alive", (int, float, str), "the model stays as long as the server runs"),
    ("id_slot slot_id", (-1,), "this server chooses the slot; leave it out"),
    ("t_max_predict_ms t_max_prompt_ms", (0, -1), _TIME),
    ("priority", (0,), "requests are served in the order in which they come"),
    ("n_probs min_keep prompt_logprobs", (0, False), "give logprobs and top_logprobs"),
    ("post_sampling_probs return_tokens return_token_ids return_tokens_as_token_ids", (False,), _TOLD),
    ("return_progress", (False,), _TOLD),
    ("timings_per_token", (bool,), "answers have no times; /metrics has"),
    ("skip_special_tokens detokenize", (True,), "an answer is its text"),
    ("spaces_between_special_tokens", (bool,), "an answer has no special tokens"),
    ("include_reasoning separate_reasoning stream_reasoning", (bool,), "thoughts come as text"),
    ("reasoning_format", ("none", "auto"), "thoughts come as text"),
    ("thinking_forced_open", (False,), "give what the model's template takes in chat_template_kwargs"),
    ("enable_thinking thinking think reasoning", (), "give what the model's template takes in chat_template_kwargs"),
    ("speculative_ngram", (bool,), "drafts change no answer"),
    ("documents images image_data", ([],), "this model reads text alone"),
    ("mm_processor_kwargs options extra_body extra_headers", ({},), "give fields of the API themselves"),
    ("chat_template", (), "the server's --chat-template chooses it"),
    ("api_type api_server cache_salt request_id genkey session_id chat_id", (str,), _NOTE),
)  # fmt: skip
"""Fields of other servers, which their clients send here as well."""

CHAT = _table(
    ("add_special_tokens continue_final_message", (False,), "the template writes all tokens"),
    ("add_generation_prompt", (True,), "the next turn is the assistant's"),
)
COMPLETION = _table(
    (
        "add_bos_token add_special_tokens",
        (True,),
        "the tokenizer adds what the model wants; else give token ids",
    ),
    ("raw", (True,), "a prompt is taken as it stands"),
    ("max_completion_tokens", (Same(("max_tokens",)),), _NAMED),
)
EMBEDDING = _table(
    ("truncate", (False, "NONE"), "this server cuts no texts; send less"),
    ("input_type", (str,), "texts are embedded as they are"),
    ("normalize", (), "vectors are as the checkpoint says; leave it out"),
)
"""Fields that one kind of request has alone."""
