// Every form of copy between pageable memory and a device, of sizes below and above what goes through pinned chunks, on
// streams that are late: the source is overwritten as soon as the call returns, a target is read as soon as it does,
// and what lies between the rows of a target stays as it is.
// harness: per-thread
// harness: stages=both
#include "../program.hpp"
#include "../staging.hpp"

constexpr unsigned kLate = 2000;
constexpr size_t kMebi = size_t{1} << 20;
static cudaStream_t created = nullptr;

// --- One dimension

struct Form {
  const char* name;
  bool asynchronous;
  cudaStream_t stream;  // that it is on
  bool unified;         // the kind is left to the addresses
};

static cudaError_t copy(const Form& form, void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (form.unified) kind = cudaMemcpyDefault;
  return form.asynchronous ? cudaMemcpyAsync(to, from, bytes, kind, form.stream) : cudaMemcpy(to, from, bytes, kind);
}

static void linear(const Form& form, size_t bytes, size_t offset, unsigned round) {
  auto* const device = device_block<unsigned char>(bytes + offset);
  auto* const pinned = pinned_block<unsigned char>(bytes);
  std::vector<unsigned char> host(bytes + offset);
  write_pattern(host.data() + offset, bytes, round);
  keep_busy(form.stream, kLate);
  const cudaError_t there = copy(form, device + offset, host.data() + offset, bytes, cudaMemcpyHostToDevice);
  memset(host.data(), 0x55, host.size());
  NEED(cudaMemcpyAsync(pinned, device + offset, bytes, cudaMemcpyDeviceToHost, form.stream));
  NEED(cudaStreamSynchronize(form.stream));
  const bool arrived = has_pattern(pinned, bytes, round);

  write_pattern(pinned, bytes, round + 1000);
  keep_busy(form.stream, kLate);
  NEED(cudaMemcpyAsync(device + offset, pinned, bytes, cudaMemcpyHostToDevice, form.stream));
  const cudaError_t back = copy(form, host.data() + offset, device + offset, bytes, cudaMemcpyDeviceToHost);
  const bool is_back = has_pattern(host.data() + offset, bytes, round + 1000);
  const bool before = std::all_of(host.data(), host.data() + offset, [](unsigned char byte) { return byte == 0x55; });
  say("%s, %zu bytes at %zu: to the device %s, right: %s; to the host %s, right: %s, before it: %s", form.name, bytes,
      offset, name_of(there), yes_no(arrived), name_of(back), yes_no(is_back), yes_no(before));
  NEED(cudaFree(device));
  NEED(cudaFreeHost(pinned));
}

// --- Two and three

struct Extent {
  size_t width, height, depth;
};
struct Gaps {
  size_t pitch, rows;  // of a slice, as the host has them
  size_t x, y, z;      // where the copy begins
};

// Where a shape lies in the host's memory.
class Image {
 public:
  Image(const Extent& extent, const Gaps& gaps) : extent_(extent), gaps_(gaps) {}

  size_t bytes() const { return gaps_.pitch * gaps_.rows * (gaps_.z + extent_.depth); }
  void scatter(unsigned char* image, const std::vector<unsigned char>& packed) const {
    each_row([&](size_t at, size_t row) { memcpy(image + at, packed.data() + row, extent_.width); });
  }
  bool holds(const unsigned char* image, const std::vector<unsigned char>& packed) const {
    bool same = true;
    each_row([&](size_t at, size_t row) { same &= memcmp(image + at, packed.data() + row, extent_.width) == 0; });
    return same;
  }

 private:
  template <class Visit>
  void each_row(Visit visit) const {
    for (size_t z = 0; z < extent_.depth; ++z)
      for (size_t y = 0; y < extent_.height; ++y)
        visit(((gaps_.z + z) * gaps_.rows + gaps_.y + y) * gaps_.pitch + gaps_.x,
              (z * extent_.height + y) * extent_.width);
  }

  Extent extent_;
  Gaps gaps_;
};

// A form of copy with a device side of its own; `host` is the image.
class Shaped {
 public:
  virtual ~Shaped() = default;
  virtual cudaError_t run(bool to_device, unsigned char* host, bool asynchronous) = 0;
};

class Plane final : public Shaped {
 public:
  Plane(const Extent& extent, const Gaps& gaps) : extent_(extent), gaps_(gaps) {
    NEED(cudaMallocPitch(&device_, &pitch_, extent.width, extent.height));
    ++made.device;
  }
  ~Plane() override { NEED(cudaFree(device_)); }
  cudaError_t run(bool to_device, unsigned char* host, bool asynchronous) override {
    host += gaps_.y * gaps_.pitch + gaps_.x;
    void *to = to_device ? device_ : host, *from = to_device ? host : device_;
    const size_t to_pitch = to_device ? pitch_ : gaps_.pitch, from_pitch = to_device ? gaps_.pitch : pitch_;
    const cudaMemcpyKind kind = to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    if (asynchronous)
      return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, extent_.width, extent_.height, kind, created);
    return cudaMemcpy2D(to, to_pitch, from, from_pitch, extent_.width, extent_.height, kind);
  }

 private:
  Extent extent_;
  Gaps gaps_;
  void* device_ = nullptr;
  size_t pitch_ = 0;
};

class Solid final : public Shaped {
 public:
  Solid(const Extent& extent, const Gaps& gaps) : extent_(extent), gaps_(gaps) {
    NEED(cudaMalloc3D(&device_, cudaExtent{extent.width + 7, extent.height + 1, extent.depth}));
    ++made.device;
  }
  ~Solid() override { NEED(cudaFree(device_.ptr)); }
  cudaError_t run(bool to_device, unsigned char* host, bool asynchronous) override {
    cudaMemcpy3DParms copy{};
    const cudaPitchedPtr on_host = cudaPitchedPtr{host, gaps_.pitch, gaps_.pitch, gaps_.rows};
    const cudaPos in_host{gaps_.x, gaps_.y, gaps_.z}, in_device{7, 1, 0};
    copy.srcPtr = to_device ? on_host : device_;
    copy.srcPos = to_device ? in_host : in_device;
    copy.dstPtr = to_device ? device_ : on_host;
    copy.dstPos = to_device ? in_device : in_host;
    copy.extent = cudaExtent{extent_.width, extent_.height, extent_.depth};
    copy.kind = to_device ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost;
    return asynchronous ? cudaMemcpy3DAsync(&copy, created) : cudaMemcpy3D(&copy);
  }

 private:
  Extent extent_;
  Gaps gaps_;
  cudaPitchedPtr device_{};
};

class InArray final : public Shaped {
 public:
  InArray(const Extent& extent, const Gaps& gaps) : extent_(extent), gaps_(gaps) {
    const cudaChannelFormatDesc bytes{8, 0, 0, 0, cudaChannelFormatKindUnsigned};
    NEED(cudaMallocArray(&array_, &bytes, extent.width + 3, extent.height + 1));
    ++made.array;
  }
  ~InArray() override { NEED(cudaFreeArray(array_)); }
  cudaError_t run(bool to_device, unsigned char* host, bool asynchronous) override {
    host += gaps_.y * gaps_.pitch + gaps_.x;
    const auto [width, height, depth] = extent_;
    if (to_device)
      return asynchronous ? cudaMemcpy2DToArrayAsync(array_, 3, 1, host, gaps_.pitch, width, height,
                                                     cudaMemcpyHostToDevice, created)
                          : cudaMemcpy2DToArray(array_, 3, 1, host, gaps_.pitch, width, height, cudaMemcpyHostToDevice);
    return asynchronous ? cudaMemcpy2DFromArrayAsync(host, gaps_.pitch, array_, 3, 1, width, height,
                                                     cudaMemcpyDeviceToHost, created)
                        : cudaMemcpy2DFromArray(host, gaps_.pitch, array_, 3, 1, width, height, cudaMemcpyDeviceToHost);
  }

 private:
  Extent extent_;
  Gaps gaps_;
  cudaArray_t array_ = nullptr;
};

template <class Form>
static void shaped(const char* name, const Extent& extent, const Gaps& gaps, bool asynchronous, unsigned round) {
  Form form(extent, gaps);
  const Image image(extent, gaps);
  const std::vector<unsigned char> first = pattern(extent.width * extent.height * extent.depth, round),
                                   second = pattern(first.size(), round + 1000);
  std::vector<unsigned char> host(image.bytes(), 0x11);
  auto* const pinned = pinned_block<unsigned char>(image.bytes());
  const cudaStream_t stream = asynchronous ? created : nullptr;
  image.scatter(host.data(), first);
  keep_busy(stream, kLate);
  const cudaError_t there = form.run(true, host.data(), asynchronous);
  memset(host.data(), 0x55, host.size());
  NEED(form.run(false, pinned, asynchronous));
  NEED(cudaStreamSynchronize(stream));
  const bool arrived = image.holds(pinned, first);

  image.scatter(pinned, second);
  keep_busy(stream, kLate);
  NEED(form.run(true, pinned, asynchronous));
  const cudaError_t back = form.run(false, host.data(), asynchronous);
  const bool is_back = image.holds(host.data(), second);
  image.scatter(host.data(), std::vector<unsigned char>(first.size(), 0x55));
  const bool between = std::all_of(host.begin(), host.end(), [](unsigned char byte) { return byte == 0x55; });
  say("%s%s, %zu x %zu x %zu: to the device %s, right: %s; to the host %s, right: %s, between: %s", name,
      asynchronous ? ", async" : "", extent.width, extent.height, extent.depth, name_of(there), yes_no(arrived),
      name_of(back), yes_no(is_back), yes_no(between));
  NEED(cudaFreeHost(pinned));
}

int main() {
  NEED(cudaFree(nullptr));
  created = new_stream();
  unsigned round = 0;
  const Form forms[] = {{"cudaMemcpy", false, nullptr, false},
                        {"cudaMemcpy, default", false, nullptr, true},
                        {"async, a stream", true, created, false},
                        {"async, default", true, created, true},
                        {"async, 0", true, nullptr, false},
                        {"async, legacy", true, cudaStreamLegacy, false},
                        {"async, per thread", true, cudaStreamPerThread, false}};
  for (const Form& form : forms) {
    for (const size_t bytes : {size_t{100'000}, kMebi, 5 * kMebi + 13})
      linear(form, bytes, bytes == kMebi ? 0 : 5, ++round);
  }
  for (const Form& form : {forms[0], forms[2]}) linear(form, 40 * kMebi, 0, ++round);
  for (const bool asynchronous : {false, true}) {
    // Short rows, rows longer than a chunk, and one row.
    shaped<Plane>("plane", {403, 250, 1}, {459, 253, 3, 1, 0}, asynchronous, ++round);
    shaped<Plane>("plane", {4093, 1300, 1}, {4152, 1301, 3, 1, 0}, asynchronous, ++round);
    shaped<Plane>("plane", {3 * kMebi + 1, 2, 1}, {3 * kMebi + 64, 2, 0, 0, 0}, asynchronous, ++round);
    shaped<Plane>("plane", {kMebi, 1, 1}, {kMebi, 1, 0, 0, 0}, asynchronous, ++round);
    shaped<Solid>("solid", {101, 37, 20}, {131, 40, 5, 1, 1}, asynchronous, ++round);
    shaped<Solid>("solid", {1021, 37, 150}, {1045, 39, 5, 1, 1}, asynchronous, ++round);
    shaped<Solid>("solid", {5000, 700, 3}, {5000, 701, 0, 1, 0}, asynchronous, ++round);
    shaped<Solid>("solid", {256, 64, 640}, {256, 64, 0, 0, 0}, asynchronous, ++round);
    shaped<InArray>("array", {2040, 700, 1}, {2049, 701, 9, 1, 0}, asynchronous, ++round);
    shaped<InArray>("array", {65000, 90, 1}, {65000, 90, 0, 0, 0}, asynchronous, ++round);
  }
  NEED(cudaStreamDestroy(created));
  return finish();
}
