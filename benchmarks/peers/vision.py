"""The vision tower of Qwen2-VL or Qwen2.5-VL, patches per second: transformers' own, features of a
picture, and forward and backward; blocks as wide as the real ones, fewer of them.

    python benchmarks/peers/vision.py --family 2.5 --side 32 --depth 4 [--kept]

side: of the picture, in patches.
"""

from common import emit, options, start, timed


def tower(family, depth):
    if family == "2":
        from transformers.models.qwen2_vl import modeling_qwen2_vl as m

        c = m.Qwen2VLVisionConfig(
            depth=depth, embed_dim=1280, hidden_size=2048, num_heads=16, mlp_ratio=4
        )
        kind = m.Qwen2VisionTransformerPretrainedModel
    else:
        from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as m

        c = m.Qwen2_5_VLVisionConfig(
            depth=depth,
            hidden_size=1280,
            intermediate_size=3420,
            num_heads=16,
            out_hidden_size=2048,
            window_size=112,
            fullatt_block_indexes=[depth - 1],
        )
        kind = m.Qwen2_5_VisionTransformerPretrainedModel
    return kind._from_config(c, attn_implementation="sdpa")


def main():
    p = options(__doc__, model=False)
    p.add_argument("--family", default="2", choices=["2", "2.5"])
    p.add_argument("--side", type=int, default=32)
    p.add_argument("--depth", type=int, default=4)
    args = start(p)
    import torch

    model = tower(args.family, args.depth)
    n = args.side**2
    pixels = torch.rand(n, 1176) * 4 - 2
    grid = torch.tensor([[1, args.side, args.side]])
    weights = torch.randn(n // 4, 2048)

    def features():
        out = model(pixels, grid_thw=grid)
        return out if isinstance(out, torch.Tensor) else out.pooler_output

    def forward():
        with torch.inference_mode():
            features()

    def both():  # gradients add up, as over the pictures of an update
        (features() * weights).sum().backward()

    for measure, run in (("vision", forward), ("vision, backward", both)):
        emit(
            measure,
            "patches/s",
            args,
            timed(run, args.repeat),
            lambda t: n / t,
            family=args.family,
            patches=n,
            depth=args.depth,
            peer="torch eager, sdpa",
        )


main()
