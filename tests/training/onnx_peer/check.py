"""Checks ONNX files with onnx.checker and runs them with onnxruntime.

Reads one JSON line per task from standard input: {"file": PATH, "rows": [[...], ...]}. Writes one JSON line per task:
the outputs of the whole batch and of each row alone, and what the file declares about itself.
"""
import json
import sys

import numpy as np
import onnx
import onnxruntime

for line in sys.stdin:
    task = json.loads(line)
    model = onnx.load(task["file"])
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(task["file"], providers=["CPUExecutionProvider"])
    rows = np.array(task["rows"], dtype=np.float32)
    run = lambda batch: session.run(None, {"features": batch})[0]
    whole, single = run(rows), np.concatenate([run(rows[i : i + 1]) for i in range(len(rows))])
    first = lambda values: [values[0].name, values[0].type, values[0].shape]
    print(
        json.dumps(
            {
                "outputs": whole[:, 0].tolist(),
                "single": single[:, 0].tolist(),
                "input": first(session.get_inputs()),
                "output": first(session.get_outputs()),
                "opsets": [[entry.domain, entry.version] for entry in model.opset_import],
                "ir_version": model.ir_version,
                "nodes": [node.op_type for node in model.graph.node],
                "initializers": [entry.name for entry in model.graph.initializer],
            }
        ),
        flush=True,
    )
