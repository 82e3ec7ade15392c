import numpy as np

from assay.report.traces import Figure, curves, upright


def test_many_curves_name_the_farthest():
    grid = np.linspace(0, 1, 5)
    lines = np.outer(np.arange(20), np.ones(5)) / 100
    traces = curves(grid, lines, [f"<{j}>" for j in range(20)], np.zeros(5))
    grey = [t for t in traces if t.get("showlegend") is False]
    assert [t["name"] for t in grey] == [f"&lt;{j}&gt;" for j in range(8)]
    others = [t for t in traces if t not in grey]
    assert [t["name"] for t in others] == [f"&lt;{j}&gt;" for j in range(8, 20)]
    assert len({(t["line"]["color"], t["line"]["dash"]) for t in others}) == 12


def test_lines_are_dashed_unless_a_style_is_given():
    assert upright(0.5)["line"]["dash"] == "dash"
    assert upright(0.5, color="@curve", width=2)["line"] == {"color": "@curve", "width": 2}


def test_columns_are_there_only_where_traces_share_them():
    assert "columns" not in Figure((), {}, "").plain
    assert Figure((), {}, "", ([1.0],)).plain["columns"] == [[1.0]]
