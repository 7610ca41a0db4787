"""bench/compare.py: a time counts only when the losses agree; and a run without peers, from end to end.

    compare_test.py AICF
"""
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
AICF = sys.argv.pop()
spec = importlib.util.spec_from_file_location("compare", ROOT / "bench" / "compare.py")
compare = importlib.util.module_from_spec(spec)
spec.loader.exec_module(compare)

LOSSES = [2.0, 1.9, 1.8]


class Check(unittest.TestCase):
    def why_not(self, losses, margin=1e-3, own=LOSSES):
        return compare.check({"losses": losses}, own, margin)

    def test_equal_losses_count(self):
        self.assertEqual(self.why_not(LOSSES), "")
        self.assertEqual(self.why_not([2.0, 1.9, 1.8019]), "")

    def test_any_step_that_leaves_the_margin_is_no_result(self):
        self.assertIn("differ by 5.0e-03", self.why_not([2.0, 1.89, 1.8]))
        self.assertIn("differ", self.why_not([2.0, 1.95, 1.9]))

    def test_no_numbers_or_too_few_are_no_result(self):
        self.assertIn("not numbers", self.why_not([2.0, float("nan"), 1.8]))
        self.assertIn("not numbers", self.why_not([2.0, 1.9]))

    def test_a_loss_that_stays_tells_nothing(self):
        self.assertIn("too little", self.why_not([2.0, 2.0, 2.0], own=[2.0, 2.0, 1.999]))

    def test_an_error_is_passed_on(self):
        self.assertEqual(compare.check({"error": "out of memory"}, LOSSES, 1), "out of memory")

    def test_the_slower_of_two_measurements_counts(self):
        self.assertEqual(compare.slower({"ms": 1, "low": 0.9, "high": 1.5}, {"ms": 1.2, "low": 1.1, "high": 1.3}),
                         {"ms": 1.2, "low": 0.9, "high": 1.5})


class Run(unittest.TestCase):
    def run_compare(self, *options):
        command = [sys.executable, str(ROOT / "bench" / "compare.py"), "--backend", "cpu", "--aicf", AICF, "--time", "0"]
        return subprocess.run([*command, *options], capture_output=True, text=True)

    def test_without_peers(self):
        with tempfile.TemporaryDirectory() as folder:
            out, raw = pathlib.Path(folder) / "t.md", pathlib.Path(folder) / "t.json"
            done = self.run_compare("--peers", "", "--workloads", "mlp-tiny-mini", "--out", str(out), "--json", str(raw))
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("| mlp-tiny-mini |", out.read_text())
            self.assertIn("Commit: ", done.stdout)
            self.assertEqual(len(json.loads(raw.read_text())["rows"][0]["losses"]), 20)

    def test_a_peer_that_is_not_there_is_left_out_and_named(self):
        done = self.run_compare("--peers", "torch", "--python", "/bin/false", "--workloads", "mlp-tiny-mini")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no result", done.stdout)

    def test_mistakes(self):
        self.assertIn("no recipe nothing", self.run_compare("--workloads", "nothing").stderr)
        self.assertIn("no peer tensorflow", self.run_compare("--peers", "tensorflow").stderr)


unittest.main()
