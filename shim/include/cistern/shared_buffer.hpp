// Elements of a type in memory that processes have in common by name: cistern/shared.h with types, and detached by the
// destructor. Attaching checks that the elements have the type that they were created with.
//
//   auto all = cistern::shared_buffer<double>::create("field", 1'000'000);       auto result = all.value().span();
//   auto all = cistern::shared_buffer<const double>::attach("field");            // in another process, to read
#ifndef CISTERN_SHARED_BUFFER_HPP
#define CISTERN_SHARED_BUFFER_HPP

#include <cistern/cistern.h>
#include <cistern/shared.h>
#include <cistern/result.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace cistern {

namespace detail {

constexpr std::uint64_t hash_of(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325) noexcept {  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// "my::cell": g++ says "... [with T = my::cell]", clang "... [T = my::cell]".
template <class T>
constexpr std::string_view name_of_type() noexcept {
  constexpr std::string_view text = __PRETTY_FUNCTION__, before = "T = ";
  constexpr std::size_t begin = text.find(before) + before.size();
  return text.substr(begin, text.find_first_of(";]", begin) - begin);
}

// Compilers have names of their own for these.
template <class T>
constexpr std::string_view name_of_number() noexcept {
  if (std::is_same_v<T, bool>) return "bool";
  if (std::is_floating_point_v<T>) return "floating";
  return std::is_signed_v<T> ? "signed" : "unsigned";
}

}  // namespace detail

// The number of a type, which is to be the same in all programs that share it: of its name, size and alignment. Two
// compilers may differ in how they write arguments of templates and unnamed namespaces: say it yourself then, by a
// specialization, and wherever the layout of a type of the same name changes.
template <class T>
struct shared_type {
  static constexpr std::uint64_t number = [] {
    std::uint64_t hash = 0;
    if constexpr (std::is_arithmetic_v<T>)
      hash = detail::hash_of(detail::name_of_number<T>());
    else
      hash = detail::hash_of(detail::name_of_type<T>());
    const char layout[] = {static_cast<char>(sizeof(T)), static_cast<char>(sizeof(T) >> 8),
                           static_cast<char>(alignof(T))};
    hash = detail::hash_of({layout, sizeof layout}, hash);
    return hash ? hash : 1;  // 0: any
  }();
};

struct shared_options {
  cistern_kind kind = CISTERN_HOST;
  int device = 0;                // of CISTERN_DEVICE, where no context is current
  unsigned mode = 0;             // create: as cistern_shared_settings
  std::optional<unsigned> user;  // attach: another user's
  std::size_t count = 0;         // attach: so many elements it must have; 0: any number
};

// `const T` is attached to be read only (of host memory).
template <class T>
class shared_buffer {
  using element = std::remove_const_t<T>;
  static_assert(std::is_trivially_copyable_v<element> && !std::is_array_v<element> && !std::is_volatile_v<element>);
  static_assert(!std::is_pointer_v<element>, "addresses are of one process");

 public:
  // Nothing is attached.
  shared_buffer() noexcept = default;
  shared_buffer(shared_buffer&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), view_(std::exchange(other.view_, {})) {}
  shared_buffer& operator=(shared_buffer&& other) noexcept {
    if (this == &other) return *this;
    give_up();
    handle_ = std::exchange(other.handle_, nullptr);
    view_ = std::exchange(other.view_, {});
    return *this;
  }
  ~shared_buffer() { give_up(); }

  // `count` elements of 0.
  static result<shared_buffer> create(const char* name, std::size_t count, const shared_options& options = {}) noexcept
      requires(!std::is_const_v<T>) {
    constexpr char kCall[] = "shared_buffer::create";
    if (count > SIZE_MAX / sizeof(T)) return failure{CISTERN_NO_MEMORY, kCall, 0};
    cistern_shared_settings settings = settings_of(name, count, options);
    settings.mode = options.mode;
    shared_buffer made;
    return made.take(kCall, cistern_shared_create(&settings, &made.handle_));
  }

  static result<shared_buffer> attach(const char* name, const shared_options& options = {}) noexcept {
    constexpr char kCall[] = "shared_buffer::attach";
    if (options.count > SIZE_MAX / sizeof(T)) return failure{CISTERN_MISMATCH, kCall, 0};
    cistern_shared_settings settings = settings_of(name, options.count, options);
    if (std::is_const_v<T> && options.kind == CISTERN_HOST) settings.flags |= CISTERN_READ_ONLY;
    if (options.user) settings.flags |= CISTERN_OF_OTHER_USER;
    settings.user = options.user.value_or(0);
    shared_buffer found;
    return found.take(kCall, cistern_shared_attach(&settings, &found.handle_));
  }

  explicit operator bool() const noexcept { return handle_; }
  std::size_t size() const noexcept { return view_.bytes / sizeof(T); }
  std::size_t size_bytes() const noexcept { return view_.bytes; }
  cistern_kind kind() const noexcept { return view_.kind; }
  // In this process; of the device, where it is device memory.
  T* data() const noexcept { return static_cast<T*>(view_.address); }
  // Of host memory; of a device's none.
  std::span<T> span() const noexcept {
    return view_.kind == CISTERN_HOST ? std::span<T>(data(), size()) : std::span<T>();
  }
  // Device memory: as CUdeviceptr.
  unsigned long long device_pointer() const noexcept {
    return view_.kind == CISTERN_DEVICE ? reinterpret_cast<std::uintptr_t>(view_.address) : 0;
  }
  // Device memory: the process that made it lives, and so does the data.
  bool owner_lives() const noexcept {
    auto now = sized<cistern_shared_view>();
    return handle_ && cistern_shared_get(handle_, &now) == CISTERN_OK && now.owner_lives;
  }

  // CISTERN_BUSY: of device memory that it owns, while others are attached. Then it is as it was; the destructor, which
  // can't wait, leaves such memory and its name to the end of the process.
  result<void> detach() noexcept {
    if (!handle_) return {};
    const cistern_status status = cistern_shared_detach(handle_);
    if (status != CISTERN_BUSY) forget();
    return {"shared_buffer::detach", status};
  }

 private:
  static cistern_shared_settings settings_of(const char* name, std::size_t count,
                                             const shared_options& options) noexcept {
    auto settings = sized<cistern_shared_settings>();
    settings.name = name;
    settings.kind = options.kind;
    settings.bytes = count * sizeof(T);
    settings.element_bytes = sizeof(T);
    settings.type = shared_type<element>::number;
    settings.device = options.device;
    return settings;
  }
  result<shared_buffer> take(const char* call, cistern_status status) noexcept {
    if (status != CISTERN_OK) return detail::failed(call, status);
    view_ = sized<cistern_shared_view>();
    cistern_shared_get(handle_, &view_);
    return std::move(*this);
  }
  void forget() noexcept {
    handle_ = nullptr;
    view_ = {};
  }
  void give_up() noexcept {
    if (handle_) cistern_shared_detach(handle_);
    forget();
  }

  cistern_shared* handle_ = nullptr;
  cistern_shared_view view_{};
};

}  // namespace cistern
#endif
