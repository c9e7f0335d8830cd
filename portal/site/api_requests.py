"""Requests that the API's description and its page show, by operation.

Answers are recorded (portal/site/api_examples.json). Tests check bodies against the description,
and commands against the client's parser.
"""

from typing import Any

JOB = "6deca7d5-b589-4cd2-b955-f5a044ed1c28"
_DAY = "2030-01-08T00:00:00Z"
_REASON = {"reason": "Planned work on the rack."}
_TRAIN = {
    "pool": "main-pool",
    "gpus": 2,
    "gpu_types": ["v100"],
    "name": "resnet",
    "command": ["python", "train.py", "--lr", "0.1"],
    "tags": ["paper"],
}

# Values of parameters in paths, for operations without a recorded URL.
PLACES = {
    "book": "main",
    "gpu_type": "v100",
    "name": "main-pool",
    "node": "node-1",
    "number": "7",
    "offer": "0b6f3b5e-3c1b-4f0e-9a52-4f3f7e0f9a11",
    "path": "results/model.pt",
    "profile": "resnet",
    "slug": "vision-lab",
    "sweep": "6492a599-12be-4014-9f2a-81d20d5d821b",
    "uid": "3f0d5c1e-8a4b-4d6e-b7a9-2c1f0e9d8b7a",
    "username": "rosa",
}
PLACE_TEXTS = {
    "book": "A book of the ledger.",
    "gpu_type": "A GPU type of the pool.",
    "name": "A pool.",
    "node": "A node of the pool.",
    "number": "A round, or a lease or maintenance by its number.",
    "offer": "An offer's id.",
    "path": "A file, as the list of files names it.",
    "profile": "A job type.",
    "slug": "A tenant, by its short name.",
    "sweep": "A sweep's id.",
    "uid": "An id.",
    "username": "A login name.",
}
# An id in the path of one of these is a job.
OF_A_JOB = "/api/v1/jobs/{uid}"

BODIES: dict[str, dict[str, Any]] = {
    "job_submit": _TRAIN,
    "job_dry_run": _TRAIN,
    "job_submit_bulk": {"jobs": [_TRAIN, {**_TRAIN, "name": "resnet-2"}]},
    "job_act": {"action": "cancel", "jobs": [JOB]},
    "job_priority": {"priority": -10},
    "sweep_submit": {
        "pool": "main-pool",
        "gpus": 1,
        "name": "rates",
        "command": ["python", "train.py", "--lr", "{{ lr }}"],
        "matrix": {"lr": ["0.1", "0.01", "0.001"]},
        "at_once": 2,
    },
    "subscription_create": {
        "tenant": "vision-lab",
        "channel": "ntfy",
        "address": "https://ntfy.example.org/rosa",
        "kinds": ["job_ended", "job_failed"],
        "tag": "paper",
    },
    "profile_put": {"speeds": {"k80": "1", "v100": "4.81"}},
    "offer_make": {"gpu_type": "v100", "gpus": 4, "floor_price": "0.25", "until": _DAY},
    "people_put": {"people": "equal"},
    "price_limit_put": {"max_price": "0.25"},
    "sharing_put": {"mode": "LEND_AND_BORROW", "borrow_limit": 8, "lend_limit": 4},
    "quota_request_make": {
        "pool": "main-pool",
        "gpu_type": "v100",
        "gpus": 16,
        "until": _DAY,
        "reason": "Deadline on Friday",
    },
    "transfer_ask": {"to": "speech-lab", "amount": "5", "reason": "Deadline on Friday"},
    "invitation_make": {"role": "member", "note": "New student"},
    "member_role": {"role": "manager"},
    "tokens_create": {
        "username": "rosa",
        "password": "...",
        "name": "pipeline",
        "scopes": ["jobs:read", "jobs:write"],
        "days": 30,
    },
    "verification_say": {
        "kind": "rounds",
        "size": 7,
        "root": "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9",
        "first": 1,
        "last": 7,
        "checked": 7,
        "findings": 0,
        "client": "evenshare 1.0",
    },
    "operate_allowance": {
        "tenant": "vision-lab",
        "amount": "1000",
        "name": "2030-02",
        "reason": "Monthly allowance",
    },
    "operate_credit_set": {
        "credit_limit": "100",
        "budget_amount": "500",
        "budget_period": "month",
        "budget_action": "warn",
    },
    "operate_maintenance_plan": {
        "pool": "main-pool",
        "nodes": ["node-1"],
        "starts_at": _DAY,
        "ends_at": "2030-01-08T06:00:00Z",
        **_REASON,
    },
    "operate_node_add": {"pool": "main-pool", "name": "node-9", "gpu_type": "v100", "gpus": 8},
    "operate_node_change": {"cpus": 96, "memory_mb": 768000},
    "operate_node_drain": _REASON,
    "operate_node_resume": _REASON,
    "operate_pool_change": {"lease_s": 3600, "idle_warn_s": 1800, **_REASON},
    "operate_losses_accept": _REASON,
    "operate_overdue_end": {"processes": "gone", "reason": "The node was reset."},
    "operate_pool_pause": _REASON,
    "operate_pool_resume": _REASON,
    "operate_pool_scale": {"scale": 60},
    "operate_quota_set": {"gpus": 16, "mode": "LEND_AND_BORROW", "lend_limit": 8},
    "operate_quota_preview": {
        "pool": "main-pool",
        "quotas": [{"tenant": "vision-lab", "gpu_type": "v100", "gpus": 16}],
    },
    "operate_quota_request_approve": {"gpus": 12, "answer": "Four fewer, until Friday."},
    "operate_quota_request_decline": {"answer": "The pool is full this week."},
    "operate_tenant_open": {"slug": "speech-lab", "name": "Speech lab", "initials": "SL"},
    "operate_transfer_approve": {"answer": "Good luck."},
    "operate_transfer_refuse": {"answer": "Please ask next month."},
}

_SUBMIT = "evenshare job submit --pool main-pool --gpus"
COMMANDS = {
    "member_list": "evenshare member list --tenant vision-lab",
    "profile_list": "evenshare profile list --pool main-pool",
    "subscription_list": "evenshare notify list",
    "subscription_create": "evenshare notify add --channel ntfy"
    " --address https://ntfy.example.org/rosa --kind job_ended --kind job_failed --tag paper",
    "subscription_test": f"evenshare notify test {PLACES['uid'][:8]}",
    "subscription_destroy": f"evenshare notify remove {PLACES['uid'][:8]}",
    "tokens_create": "evenshare login --username rosa",
    "job_submit": f"{_SUBMIT} 2 --name resnet --tag paper -- python train.py --lr 0.1",
    "job_dry_run": f"{_SUBMIT} 2 --dry-run -- python train.py --lr 0.1",
    "job_list": "evenshare job list --state running",
    "job_show": f"evenshare job show {JOB[:8]}",
    "job_why": f"evenshare job why {JOB[:8]}",
    "job_cancel": f"evenshare job cancel {JOB[:8]}",
    "job_hold": f"evenshare job hold {JOB[:8]}",
    "job_release": f"evenshare job release {JOB[:8]}",
    "job_priority": f"evenshare job priority {JOB[:8]} -10",
    "job_logs": f"evenshare job logs {JOB[:8]}",
    "job_usage": f"evenshare job usage {JOB[:8]}",
    "job_metrics": f"evenshare job metrics {JOB[:8]}",
    "job_files": f"evenshare job files {JOB[:8]}",
    "job_file": f"evenshare job fetch {JOB[:8]} results/model.pt",
    "sweep_submit": f"{_SUBMIT} 1 --matrix lr=0.1,0.01 --at-once 2 -- python train.py {{{{lr}}}}",
    "sweep_list": "evenshare sweep list",
    "sweep_show": "evenshare sweep show 6492a599",
    "sweep_jobs": "evenshare sweep show 6492a599 --state failed",
    "sweep_cancel": "evenshare sweep cancel 6492a599",
    "sweep_resubmit": "evenshare sweep resubmit 6492a599",
    "pool_list": "evenshare pool list",
    "pool_show": "evenshare pool show main-pool",
    "pool_queue": "evenshare queue --pool main-pool",
    "quota_use_list": "evenshare quota --pool main-pool",
    "price_list": "evenshare price show --pool main-pool",
    "price_history": "evenshare price history --pool main-pool --type v100",
    "price_forecast": "evenshare price forecast --pool main-pool",
    "contribution_show": "evenshare contribution --pool main-pool --tenant vision-lab",
    "contribution_lines": "evenshare contribution --pool main-pool --lines",
    "offer_list": "evenshare offer list --pool main-pool --tenant vision-lab",
    "offer_make": "evenshare offer create --pool main-pool --tenant vision-lab --gpu-type v100"
    f" --gpus 4 --floor 0.25 --until {_DAY}",
    "offer_revoke": f"evenshare offer revoke {PLACES['offer']} --pool main-pool"
    " --tenant vision-lab",
    "sharing_show": "evenshare sharing show --pool main-pool --tenant vision-lab",
    "sharing_put": "evenshare sharing set --pool main-pool --tenant vision-lab --gpu-type v100"
    " --lend-limit 4 --borrow-limit 8",
    "price_limit_put": "evenshare sharing limit 0.25 --pool main-pool --tenant vision-lab",
    "credit_list": "evenshare credit show --tenant vision-lab",
    "transfer_ask": "evenshare credit transfer --to speech-lab --amount 5 --reason deadline",
    "chain_show": "evenshare round pin --pool main-pool",
    "round_bundle": "evenshare round verify 7 --pool main-pool",
    "usage_list": "evenshare statement verify --pool main-pool --from 2030-01-01 --to 2030-02-01",
}
