"""The part of `--help` on policies and their options, from their own descriptions."""

import argparse
import json
from textwrap import fill

from evenshare_core.policies.options import Option, describe_options
from evenshare_core.policies.policy import Policy
from evenshare_core.policies.registry import POLICIES

WIDTH = 96


def add_policy_help(parser: argparse.ArgumentParser) -> None:
    """Append all policies with their options to the parser's help."""
    parser.epilog = "policies and their options:\n\n" + "\n\n".join(
        _policy(policy) for _, policy in sorted(POLICIES.items())
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter


def _policy(policy: Policy) -> str:
    lines = [fill(f"{policy.name}: {policy.title}. {policy.promise}", WIDTH)]
    lines += [_option(policy.name, option) for option in describe_options(policy.options_type)]
    return "\n".join(lines)


def _option(policy: str, option: Option) -> str:
    default = json.dumps(option.default) if option.kind == "switch" else option.default
    text = f"{policy}.{option.name}={default}  {option.description}"
    return fill(text, WIDTH, initial_indent="  ", subsequent_indent="      ")
