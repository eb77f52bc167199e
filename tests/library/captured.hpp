// What is said on stderr meanwhile. GoogleTest's own capture puts a plain file behind descriptor 2, which may be data
// of a program's as far as the library knows; this one is open for appending, as logs are.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <unistd.h>

#include <string>

class Captured {
 public:
  Captured() : before_(dup(STDERR_FILENO)), file_(tmpfile()) {
    fflush(stderr);
    EXPECT_EQ(fcntl(fileno(file_), F_SETFL, O_APPEND), 0);
    EXPECT_EQ(dup2(fileno(file_), STDERR_FILENO), STDERR_FILENO);
  }
  ~Captured() {
    end();
    fclose(file_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  // Ends it.
  std::string text() {
    end();
    std::string said;
    rewind(file_);
    for (int c; (c = fgetc(file_)) != EOF;) said.push_back(static_cast<char>(c));
    return said;
  }

 private:
  void end() {
    if (before_ < 0) return;
    fflush(stderr);
    dup2(before_, STDERR_FILENO);
    close(before_);
    before_ = -1;
  }

  int before_;
  FILE* const file_;
};
