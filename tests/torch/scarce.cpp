// An allocator before libtorch's, which refuses what scarce() says.
#include "torch/scarce.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>

namespace
{

int64_t wait = 0, left = 0, refused = 0, largest = 0;

bool refuse()
{
    if (left == 0 || wait-- > 0) return false;
    wait = 0;
    left--;
    refused++;
    return true;
}

struct scarce_allocator final : c10::Allocator {
    c10::Allocator *under = c10::GetCPUAllocator();

    c10::DataPtr allocate(size_t n) override
    {
        TORCH_CHECK_WITH(OutOfMemoryError, !refuse(), "CUDA out of memory. Tried to allocate ", n,
                         " bytes. GPU 0 has a total capacity of 139.80 GiB of which 3.00 MiB is "
                         "free. Of the allocated memory 1.00 GiB is allocated by PyTorch.");
        largest = std::max(largest, (int64_t)n);
        return under->allocate(n);
    }
    c10::DeleterFnPtr raw_deleter() const override
    {
        return under->raw_deleter();
    }
    void copy_data(void *to, const void *from, size_t n) const override
    {
        under->copy_data(to, from, n);
    }
};

} // namespace

void scarce(int64_t after, int64_t times)
{
    static scarce_allocator *allocator = [] {
        auto *made = new scarce_allocator;
        c10::SetCPUAllocator(made, 1);
        return made;
    }();
    (void)allocator;
    wait = after;
    left = times;
    refused = largest = 0;
}

int64_t scarce_largest(void)
{
    return largest;
}

int64_t scarce_end(void)
{
    left = 0;
    return refused;
}
