"""CSV file of a run's leases, comparable with the leases of a live pool."""

from evenshare_core.csv_cells import write_csv
from evenshare_core.simulation.books import Books
from evenshare_core.simulation.scenario import Scenario
from evenshare_core.simulation.workload_files import format_seconds

COLUMNS = ("job", "tenant", "lease", "gpu_type", "nodes", "start_s", "end_s", "end_reason")


def leases_csv(scenario: Scenario, books: Books) -> str:
    """Return one line per lease in the order of their starts.

    `lease` counts the leases of a job. `nodes` are NAME:GPUS, separated by spaces. Seconds are on
    the clock of the jobs, with microseconds.
    """
    jobs = {job.id: job for job in scenario.workload.jobs}
    names, tenants = scenario.node_names, scenario.workload.tenants
    rows = []
    for row in sorted(books.leases, key=lambda row: (row.start_us, row.lease)):
        job = jobs[row.job]
        nodes = " ".join(f"{names.get(node, node)}:{gpus}" for node, gpus in row.placement)
        rows.append(
            (
                job.name, tenants[job.tenant], row.number, row.gpu_type, nodes,
                format_seconds(row.start_us), format_seconds(row.end_us), row.reason,
            )
        )  # fmt: skip # rows of what belongs together
    return write_csv(COLUMNS, rows)
