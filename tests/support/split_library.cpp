// What stats/split_units_test.cpp asks for the names of: a library whose debug information lies beside it. It calls
// back from a call that was inlined into one that was inlined itself. Nothing is included: the tests damage each byte.
namespace split {

using Callback = void (*)();

#line 100 "split_library.cpp"
[[gnu::always_inline]] static inline void inner(Callback callback) {
  callback();
  asm volatile("");
}

struct Middle {
  [[gnu::always_inline]] inline void call(Callback callback) {
#line 200
    inner(callback);
    asm volatile("");
  }
};

}  // namespace split

// Or GCC's list of places, which in DWARF 4 counts from the file's first code, begins like one that has ended.
extern "C" int split_first() { return 0; }

extern "C" int split_outer(split::Callback callback) {
  split::Middle middle;
#line 300
  middle.call(callback);
  return 1;
}

#ifdef SPLIT_OTHER_BUILD
int split_other() { return 2; }
#endif
