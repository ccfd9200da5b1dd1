// Automatic differentiation, the oracle of the hand-written backward passes.
#include "torch.hpp"

#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <vector>

at_tensor at_requires_grad_(at_tensor t, bool on)
{
    if (!ares_torch::ready(__func__, &t, 1)) return nullptr;
    try {
        t->t.requires_grad_(on);
        return t;
    } catch (...) {
        ares_torch::failed(__func__, &t, 1);
        return nullptr;
    }
}

int at_grad(at_tensor output, at_tensor grad_output, const at_tensor *inputs, int n, bool keep,
            at_tensor *grads)
{
    for (int i = 0; i < n; i++) grads[i] = nullptr;
    std::vector<at_tensor> operands{ output };
    if (grad_output) operands.push_back(grad_output);
    operands.insert(operands.end(), inputs, inputs + n);
    if (!ares_torch::ready(__func__, operands.data(), operands.size())) return ares_torch::code();
    try {
        torch::autograd::variable_list seeds, by;
        if (grad_output) seeds.push_back(grad_output->t);
        for (int i = 0; i < n; i++) by.push_back(inputs[i]->t);
        auto found = torch::autograd::grad({ output->t }, by, seeds, keep, /*create_graph=*/false,
                                           /*allow_unused=*/true);
        for (int i = 0; i < n; i++)
            grads[i] = ares_torch::adopt(
                found[(size_t)i].defined() ? found[(size_t)i] : at::zeros_like(by[(size_t)i]));
        return ARES_OK;
    } catch (...) {
        return ares_torch::failed(__func__, operands.data(), operands.size());
    }
}

bool at_set_grad_enabled(bool on)
{
    bool was = c10::GradMode::is_enabled();
    c10::GradMode::set_enabled(on);
    return was;
}
