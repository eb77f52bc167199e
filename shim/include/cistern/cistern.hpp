// The C++ interface, all of it: C++20, thin over the C interface, with and without exceptions and RTTI. libcu++'s and
// RMM's resources are apart: cistern/cuda_resource.hpp.
#ifndef CISTERN_CISTERN_HPP
#define CISTERN_CISTERN_HPP

#include <cistern/buffer.hpp>
#include <cistern/double_buffer.hpp>
#include <cistern/mapped_file.hpp>
#include <cistern/memory_resource.hpp>
#include <cistern/object_pool.hpp>
#include <cistern/pool.hpp>
#include <cistern/shared_buffer.hpp>
#include <cistern/unified_buffer.hpp>

#endif
