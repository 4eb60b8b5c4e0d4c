"""The paper's tables and curves, run again: jobs, evaluation, baselines, claims, report."""
