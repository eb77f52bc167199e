// A program that has a function of the C library's own, for its unwinder. Its answers lack the map of the object, which
// the unwinder does not need.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct look {
  char* address;
  struct dl_find_object* found;
};

static int is_in(struct dl_phdr_info* module, size_t bytes, void* data) {
  (void)bytes;
  struct look* const look = data;
  for (int i = 0; i < module->dlpi_phnum; ++i) {
    const ElfW(Phdr)* const header = module->dlpi_phdr + i;
    char* const first = (char*)module->dlpi_addr + header->p_vaddr;
    if (header->p_type != PT_LOAD || look->address < first || look->address >= first + header->p_memsz) continue;
    memset(look->found, 0, sizeof *look->found);
    return 1;
  }
  return 0;
}

int _dl_find_object(void* address, struct dl_find_object* found) {
  struct look look = {address, found};
  return dl_iterate_phdr(is_in, &look) ? 0 : -1;
}

int main(void) {
  struct dl_find_object found;
  char* const block = malloc(100);
  strcpy(block, "whole");
  printf("%s %d\n", block, _dl_find_object((void*)main, &found));
  free(block);
}
