// What the files of this room share. A handle is an at::Tensor on the heap; an operation is a
// lambda that may throw.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <exception>
#include <initializer_list>

#include "ares/at.h"

struct at_tensor_data {
    at::Tensor t;
    at_scope *scope; // nullptr: owned
    size_t place;    // in the scope's list
};

namespace ares_torch
{

using operands = std::initializer_list<at_tensor>;

at_tensor adopt(at::Tensor t); // a handle in the innermost scope
// whether the scope has no failure and no operand is NULL
bool ready(const char *op, const at_tensor *in, size_t n);
// inside a catch: records the exception and returns its code
int failed(const char *op, const at_tensor *in, size_t n);
int code();       // of the innermost scope's failure
bool gave_back(); // whether the innermost scope has got memory for the device
at::ScalarType type_of(at_dtype dtype);
at_dtype dtype_of(at::ScalarType type);

// f(), once more where the device had too little memory and some was given back.
template <class F> auto attempt(F f)
{
    try {
        return f();
    } catch (const c10::OutOfMemoryError &) {
        if (!gave_back()) throw;
    }
    return f();
}

template <class F> at_tensor op(const char *name, operands in, F f) noexcept
{
    if (!ready(name, in.begin(), in.size())) return nullptr;
    try {
        return adopt(attempt(f));
    } catch (...) {
        failed(name, in.begin(), in.size());
        return nullptr;
    }
}

// For operations that write into `out`, and return it.
template <class F> at_tensor into(const char *name, at_tensor out, operands in, F f) noexcept
{
    if (!ready(name, &out, 1) || !ready(name, in.begin(), in.size())) return nullptr;
    try {
        attempt(f);
        return out;
    } catch (...) {
        failed(name, in.begin(), in.size());
        return nullptr;
    }
}

} // namespace ares_torch

// The body of an operation: its tensor operands, then the expression.
#define AT_OPERANDS(...) { __VA_ARGS__ }
#define AT_OP(operands_, expression) \
    return ares_torch::op(__func__, operands_, [&]() -> at::Tensor { return expression; })
#define AT_INTO(out, operands_, statement) \
    return ares_torch::into(__func__, out, operands_, [&] { statement; })
// An operation in a line: name, parameters, tensor operands, then what it gives or does.
#define AT_DEFINE(name, parameters, operands_, ...)  \
    at_tensor name parameters                        \
    {                                                \
        AT_OP(AT_OPERANDS operands_, (__VA_ARGS__)); \
    }
#define AT_DEFINE_INTO(name, parameters, out, operands_, ...) \
    at_tensor name parameters                                 \
    {                                                         \
        AT_INTO(out, AT_OPERANDS operands_, __VA_ARGS__);     \
    }
