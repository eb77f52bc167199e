// See single_threaded.hpp. In C, where the address of a function may be any pointer's first value: that of one whose
// place is asked for when the loader fills in addresses, before any code of ours runs.

// As the archives that are linked in read it, which has no address to choose: nothing of theirs that counts is busy.
__attribute__((visibility("hidden"))) const char __wrap___libc_single_threaded = 0;

__attribute__((weak)) extern const char __real___libc_single_threaded;

typedef void Place(void);
// Called before a sanitizer could be.
__attribute__((used, hot, no_sanitize("thread", "address"))) static Place* choose(void) {
  const char* const real = &__real___libc_single_threaded;
  return (Place*)(real ? real : &__wrap___libc_single_threaded);
}
static Place place __attribute__((ifunc("choose")));

__attribute__((visibility("hidden"))) const void* const cistern_threads = (const void*)&place;
