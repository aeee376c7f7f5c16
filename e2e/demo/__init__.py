"""The main job, end to end, on the local cluster: from nothing to an answer and a proved purge.

``python -m e2e.demo up`` starts whatever does not run, applies ``examples/quickstart`` and tells
the story; ``redeploy`` brings a change of our code to the running cluster. Both may be repeated.
"""
