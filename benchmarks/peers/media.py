"""Pictures per second of Pillow and transformers' Qwen2VLImageProcessor: the other side of
benchmarks/media.c, which makes the files.

python benchmarks/peers/media.py FOLDER [--threads 1] [--repeat 20] [--backend torchvision]
"""

import common


def main():
    p = common.options(__doc__, model=False)
    p.set_defaults(repeat=20, threads=1)
    p.add_argument("folder")
    p.add_argument("--backend", default="torchvision", choices=["torchvision", "pil"])
    args = common.start(p)
    import transformers
    from PIL import Image

    if args.backend == "pil":
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
            Qwen2VLImageProcessorPil as Processor,
        )
    else:
        from transformers import Qwen2VLImageProcessor as Processor
    processor = Processor(size={"shortest_edge": 3136, "longest_edge": 12845056})
    for case, name in (("JPEG 640 x 480", "a.jpg"), ("PNG 1024 x 1024", "b.png")):
        path, out = "%s/%s" % (args.folder, name), {}

        def decoded():
            with Image.open(path) as picture:
                return picture.convert("RGB")

        def process(picture):
            out.update(processor(images=[picture], return_tensors="pt"))

        ready = decoded()
        runs = {"file": lambda: process(decoded()), "pixels": lambda: process(ready)}
        for what, run in runs.items():
            times = common.timed(run, args.repeat)
            common.emit(
                "media",
                "pictures/s",
                args,
                times,
                lambda s: 1 / s,
                case="%s, from its %s" % (case, what),
                tokens=int(out["image_grid_thw"].prod()) // 4,
                backend=args.backend,
                transformers=transformers.__version__,
            )


main()
