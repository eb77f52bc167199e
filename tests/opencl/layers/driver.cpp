// A layer that the tests put below everything else: to the programs, and to Cistern, it is part of the driver. It makes
// of PoCL a driver
//   - with little memory (kLimit): a buffer takes its bytes when it is made with CL_MEM_ALLOC_HOST_PTR, else at its
//     first clEnqueueWriteBuffer; images, pipes and shared virtual memory when they are made; all give them back when
//     they are really gone;
//   - with extension functions that set kernel arguments, one of a name that nobody knows;
//   - with unified shared memory of the host, which is freed in its own context only;
//   - whose kernels take their time: the next one begins when testsLetGo() says so, after testsHoldNextKernel().
#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 300
#endif
#include <CL/cl_layer.h>
#include <stdlib.h>
#include <string.h>

#include <map>
#include <mutex>
#include <vector>

#include "tests/support/layer.hpp"

namespace {

constexpr size_t kLimit = size_t{64} << 20;

cl_icd_dispatch below, ours;

// Bytes taken, by handle or pointer.
struct Ledger {
  std::mutex mutex;
  std::map<const void*, size_t> bytes;
  size_t taken = 0;

  bool take(const void* of, size_t wanted) {
    std::lock_guard hold(mutex);
    if (bytes.count(of)) return true;
    if (wanted > kLimit - taken) return false;
    bytes[of] = wanted;
    taken += wanted;
    return true;
  }
  void give_back(const void* of) {
    std::lock_guard hold(mutex);
    auto found = bytes.find(of);
    if (found == bytes.end()) return;
    taken -= found->second;
    bytes.erase(found);
  }
};
Ledger& ledger = *new Ledger;  // outlives every release

void CL_CALLBACK destroyed(cl_mem memory, void*) { ledger.give_back(memory); }

size_t bytes_of(cl_mem memory) {
  size_t bytes = 0;
  below.clGetMemObjectInfo(memory, CL_MEM_SIZE, sizeof bytes, &bytes, nullptr);
  return bytes;
}

// What was made takes its bytes, or is gone again.
cl_mem charged(cl_mem made, cl_int* errcode, bool at_once = true) {
  if (!made) return made;
  below.clSetMemObjectDestructorCallback(made, destroyed, nullptr);
  if (!at_once || ledger.take(made, bytes_of(made))) return made;
  below.clReleaseMemObject(made);
  if (errcode) *errcode = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return nullptr;
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* errcode) {
  return charged(below.clCreateBuffer(context, flags, size, host, errcode), errcode, flags & CL_MEM_ALLOC_HOST_PTR);
}
cl_mem CL_API_CALL create_buffer_with_properties(cl_context context, const cl_mem_properties* properties,
                                                 cl_mem_flags flags, size_t size, void* host, cl_int* errcode) {
  return charged(below.clCreateBufferWithProperties(context, properties, flags, size, host, errcode), errcode);
}
cl_mem CL_API_CALL create_image(cl_context context, cl_mem_flags flags, const cl_image_format* format,
                                const cl_image_desc* description, void* host, cl_int* errcode) {
  return charged(below.clCreateImage(context, flags, format, description, host, errcode), errcode);
}
cl_mem CL_API_CALL create_image_2d(cl_context context, cl_mem_flags flags, const cl_image_format* format, size_t width,
                                   size_t height, size_t pitch, void* host, cl_int* errcode) {
  return charged(below.clCreateImage2D(context, flags, format, width, height, pitch, host, errcode), errcode);
}
void* CL_API_CALL svm_alloc(cl_context context, cl_svm_mem_flags flags, size_t size, cl_uint alignment) {
  void* made = below.clSVMAlloc(context, flags, size, alignment);
  if (!made || ledger.take(made, size)) return made;
  below.clSVMFree(context, made);
  return nullptr;
}
void CL_API_CALL svm_free(cl_context context, void* pointer) {
  ledger.give_back(pointer);
  below.clSVMFree(context, pointer);
}
cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                                const void* host, cl_uint wait_count, const cl_event* wait_list, cl_event* event) {
  if (!ledger.take(buffer, bytes_of(buffer))) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return below.clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, host, wait_count, wait_list, event);
}

cl_int CL_API_CALL set_pointer(cl_kernel kernel, cl_uint index, const void* value) {
  return below.clSetKernelArgSVMPointer(kernel, index, value);
}
cl_int CL_API_CALL set_address(cl_kernel kernel, cl_uint index, cl_ulong value) {
  return below.clSetKernelArgSVMPointer(kernel, index, reinterpret_cast<void*>(value));
}

// --- Kernels that take their time. Nobody above sees what they wait for.
std::mutex& hold_mutex = *new std::mutex;
cl_event next_hold, held;

cl_int CL_API_CALL hold_next_kernel(cl_context context) {
  cl_int code = 0;
  std::lock_guard guard(hold_mutex);
  next_hold = below.clCreateUserEvent(context, &code);
  return code;
}
cl_int CL_API_CALL let_go(cl_int status) {
  cl_event event;
  {
    std::lock_guard guard(hold_mutex);
    event = held;
    held = nullptr;
  }
  const cl_int code = below.clSetUserEventStatus(event, status);
  below.clReleaseEvent(event);
  return code;
}

cl_int CL_API_CALL run_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t* offset,
                              const size_t* global, const size_t* local, cl_uint wait_count, const cl_event* wait_list,
                              cl_event* event) {
  std::vector<cl_event> all;
  {
    std::lock_guard guard(hold_mutex);
    if (next_hold) {
      all.assign(wait_list, wait_list + wait_count);
      all.push_back(held = next_hold);
    }
    next_hold = nullptr;
  }
  if (all.empty())  // the arguments may be nonsense, which is the driver's to judge
    return below.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local, wait_count, wait_list, event);
  return below.clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global, local,
                                      static_cast<cl_uint>(all.size()), all.data(), event);
}

// --- Unified shared memory, by its context
std::mutex& shared_mutex = *new std::mutex;
std::map<void*, cl_context>& shared_memory = *new std::map<void*, cl_context>;

void* CL_API_CALL allocate_shared(cl_context context, const cl_bitfield*, size_t bytes, cl_uint, cl_int* errcode) {
  // More than a device has is refused without asking the C library, which is Cistern's too and would say so.
  constexpr size_t kBytesMax = size_t{1} << 40;
  void* const made = context && bytes && bytes <= kBytesMax ? malloc(bytes) : nullptr;
  if (errcode) *errcode = made ? CL_SUCCESS : !context ? CL_INVALID_CONTEXT : CL_INVALID_BUFFER_SIZE;
  if (!made) return nullptr;
  std::lock_guard guard(shared_mutex);
  shared_memory[made] = context;
  return made;
}
cl_int CL_API_CALL free_shared(cl_context context, void* pointer) {
  {
    std::lock_guard guard(shared_mutex);
    const auto found = shared_memory.find(pointer);
    if (found == shared_memory.end() || found->second != context) return CL_INVALID_VALUE;
    shared_memory.erase(found);
  }
  free(pointer);
  return CL_SUCCESS;
}

// PoCL has none; the queue stays what it is.
cl_int CL_API_CALL set_queue_property(cl_command_queue, cl_command_queue_properties, cl_bool,
                                      cl_command_queue_properties*) {
  return CL_SUCCESS;
}

void* extension(const char* name) {
  if (name && !strcmp(name, "testsHoldNextKernel")) return reinterpret_cast<void*>(&hold_next_kernel);
  if (name && !strcmp(name, "testsLetGo")) return reinterpret_cast<void*>(&let_go);
  for (const char* pointer :
       {"clSetKernelArgMemPointerINTEL", "clSetKernelArgSVMPointerARM", "clSetKernelArgOfTomorrow"})
    if (name && !strcmp(name, pointer)) return reinterpret_cast<void*>(&set_pointer);
  if (name && !strcmp(name, "clHostMemAllocINTEL")) return reinterpret_cast<void*>(&allocate_shared);
  if (name && !strcmp(name, "clMemFreeINTEL")) return reinterpret_cast<void*>(&free_shared);
  if (name && !strcmp(name, "clSetKernelArgDevicePointerEXT")) return reinterpret_cast<void*>(&set_address);
  return nullptr;
}
void* CL_API_CALL extension_by_name(const char* name) {
  void* found = extension(name);
  return found ? found : below.clGetExtensionFunctionAddress(name);
}
void* CL_API_CALL extension_by_platform(cl_platform_id platform, const char* name) {
  void* found = extension(name);
  return found ? found : below.clGetExtensionFunctionAddressForPlatform(platform, name);
}

}  // namespace

extern "C" cl_int CL_API_CALL clGetLayerInfo(cl_layer_info name, size_t bytes, void* value, size_t* bytes_ret) {
  return cistern::test::layer_info("tests", name, bytes, value, bytes_ret);
}

extern "C" cl_int CL_API_CALL clInitLayer(cl_uint count, const cl_icd_dispatch* target, cl_uint* count_ret,
                                          const cl_icd_dispatch** layer) {
  if (!cistern::test::begin_layer(count, target, count_ret, layer, below, ours)) return CL_INVALID_VALUE;
  ours.clCreateBuffer = create_buffer;
  ours.clCreateBufferWithProperties = create_buffer_with_properties;
  ours.clCreateImage = create_image;
  ours.clCreateImage2D = create_image_2d;
  ours.clSVMAlloc = svm_alloc;
  ours.clSVMFree = svm_free;
  ours.clEnqueueWriteBuffer = write_buffer;
  ours.clEnqueueNDRangeKernel = run_kernel;
  ours.clSetCommandQueueProperty = reinterpret_cast<decltype(ours.clSetCommandQueueProperty)>(&set_queue_property);
  ours.clGetExtensionFunctionAddress = extension_by_name;
  ours.clGetExtensionFunctionAddressForPlatform = extension_by_platform;
  return CL_SUCCESS;
}
