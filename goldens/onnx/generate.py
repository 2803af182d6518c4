"""Writes the node tests of the `onnx` package into one zip: for each case `NAME/model.onnx` and its tensors as
`NAME/input_I.pb` and `NAME/output_I.pb`, as the package's own tool lays out other cases.

usage: generate.py OUT.zip [CASE ...]     all cases unless some are named

The cases are the package's own (Apache-2.0, https://github.com/onnx/onnx); versions in requirements.txt. Inputs that are
no tensors (sequences, optionals, strings aside) have no file: the reader leaves these cases out by the model's types.
"""

import sys
import warnings
import zipfile

warnings.simplefilter("ignore")

from onnx import TensorProto, numpy_helper  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402


def tensors(values, infos):
    """Serialised tensors; none for values of other kinds."""
    for i, (value, info) in enumerate(zip(values, infos)):
        if not info.type.HasField("tensor_type"):
            continue
        tensor = value if isinstance(value, TensorProto) else numpy_helper.from_array(value, info.name)
        yield i, tensor.SerializeToString(deterministic=True)


def main():
    out, wanted = sys.argv[1], set(sys.argv[2:])
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:

        def write(name, data):
            # A fixed date: the same cases give the same file.
            archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)

        n_cases = 0
        for case in collect_testcases(None):
            if wanted and case.name not in wanted:
                continue
            n_cases += 1
            write(f"{case.name}/model.onnx", case.model.SerializeToString(deterministic=True))
            inputs, outputs = case.data_sets[0]
            for kind, values, infos in [
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ]:
                for i, data in tensors(values, infos):
                    write(f"{case.name}/{kind}_{i}.pb", data)
    print(f"{n_cases} cases in {out}")


main()
