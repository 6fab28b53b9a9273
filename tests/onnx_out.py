"""onnx_out.py DIR NAME...: are DIR/NAME.onnx sound by onnx's checker, and does ONNX Runtime make of three samples, and
of the first, what stands beside them? With its optimisations and without. DIR/NAME.bin: inputs and output, as
tests/onnx_ops.c has them; or NAME-x.npy, and NAME-y.npy with channels first. Writes the lines "ok - text" of TAP, with
the largest difference by the largest value."""
import os
import sys

import numpy as np
import onnx
import onnxruntime

TYPES = {1: np.float32, 6: np.int32, 7: np.int64}
LIMIT = 1e-5
onnxruntime.set_default_logger_severity(3)


def sound(path):
    onnx.checker.check_model(path, full_check=True)
    model = onnx.load(path, load_external_data=False)
    onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    for t in model.graph.initializer:
        where = {e.key: e.value for e in t.external_data}
        assert int(where.get("offset", 0)) % 4096 == 0, f"{t.name} at {where}"
    return model.graph


def arrays(graph, name):
    """The inputs by name, and the expected output, each of three samples."""
    if os.path.exists(f"{name}-x.npy"):
        x, y = np.load(f"{name}-x.npy"), np.load(f"{name}-y.npy")
        x, y = x[:3], y[:3]
        return {graph.input[0].name: x}, y if x.dtype == np.float32 else y.swapaxes(1, 2)
    raw, at, out = open(f"{name}.bin", "rb").read(), 0, []
    for value in [*graph.input, graph.output[0]]:
        kind = np.dtype(TYPES[value.type.tensor_type.elem_type])
        shape = [3] + [d.dim_value for d in value.type.tensor_type.shape.dim[1:]]
        out.append(np.frombuffer(raw, kind, int(np.prod(shape)), at).reshape(shape))
        at += out[-1].nbytes
    assert at == len(raw), f"{name}.bin has {len(raw)} bytes, of which {at} are read"
    return dict(zip([i.name for i in graph.input], out)), out[-1]


def farthest(path, inputs, wanted):
    worst = 0
    levels = onnxruntime.GraphOptimizationLevel
    for level in levels.ORT_DISABLE_ALL, levels.ORT_ENABLE_ALL:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        for n in len(wanted), 1:
            got, = session.run(None, {k: v[:n] for k, v in inputs.items()})
            assert got.shape == wanted[:n].shape, f"{got.shape}, wanted {wanted[:n].shape}"
            worst = max(worst, float(np.abs(got - wanted[:n]).max() / np.abs(wanted).max()))
    return worst


def main(folder, names):
    for name in names:
        try:
            graph = sound(f"{folder}/{name}.onnx")
            worst = farthest(f"{folder}/{name}.onnx", *arrays(graph, f"{folder}/{name}"))
            print("ok" if worst <= LIMIT else "not ok", f"- {name}: {len(graph.node)} nodes, within {worst:.1e}")
        except Exception as e:
            print(f"not ok - {name}:", " ".join(str(e).split())[:300])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
