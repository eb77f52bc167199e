// The null stream of code that is compiled for default streams of threads (cuda_mr_test.cpp).
#define CUDA_API_PER_THREAD_DEFAULT_STREAM
#include <cistern/cuda_resource.hpp>

void* queue_of_null_per_thread() { return cistern::detail::any_stream(nullptr).as_queue(); }
