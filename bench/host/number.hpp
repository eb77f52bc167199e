// Natural numbers of any length with counted references, each result in a block of malloc of its own: what cfrac.cpp
// computes with.
#pragma once

#include "workload.hpp"

namespace host_bench {

/// Limbs of 32 bits, the lowest first, the highest not zero.
class Number {
 public:
  explicit Number(std::uint32_t value) : Number(Zeros{1}) {
    limbs_->limb[0] = value;
    drop_zeros();
  }
  Number(const Number& other) : limbs_(other.limbs_) { ++limbs_->references; }
  Number(Number&& other) noexcept : limbs_(std::exchange(other.limbs_, nullptr)) {}
  Number& operator=(Number other) noexcept {
    std::swap(limbs_, other.limbs_);
    return *this;
  }
  ~Number() {
    if (limbs_ != nullptr && --limbs_->references == 0) std::free(limbs_);
  }
  std::uint32_t size() const { return limbs_->count; }
  std::uint32_t operator[](std::uint32_t at) const { return at < limbs_->count ? limbs_->limb[at] : 0; }

  friend bool operator<(const Number& a, const Number& b) {
    if (a.size() != b.size()) return a.size() < b.size();
    for (std::uint32_t at = a.size(); at-- > 0;)
      if (a[at] != b[at]) return a[at] < b[at];
    return false;
  }
  friend bool operator==(const Number& a, const Number& b) { return !(a < b) && !(b < a); }

  friend Number operator+(const Number& a, const Number& b) {
    Number sum(Zeros{(a.size() > b.size() ? a.size() : b.size()) + 1});
    std::uint64_t carry = 0;
    for (std::uint32_t at = 0; at < sum.size(); ++at, carry >>= 32) {
      carry += std::uint64_t{a[at]} + b[at];
      sum.limbs_->limb[at] = static_cast<std::uint32_t>(carry);
    }
    return sum.trim();
  }
  /// b is not greater than a.
  friend Number operator-(const Number& a, const Number& b) {
    Number difference(Zeros{a.size()});
    std::int64_t borrow = 0;
    for (std::uint32_t at = 0; at < a.size(); ++at, borrow >>= 32) {
      borrow += std::int64_t{a[at]} - b[at];
      difference.limbs_->limb[at] = static_cast<std::uint32_t>(borrow);
    }
    return difference.trim();
  }
  friend Number operator*(const Number& a, const Number& b) {
    Number product(Zeros{a.size() + b.size()});
    for (std::uint32_t i = 0; i < a.size(); ++i) {
      std::uint64_t carry = 0;
      for (std::uint32_t j = 0; i + j < product.size(); ++j, carry >>= 32) {
        carry += product[i + j] + std::uint64_t{a[i]} * b[j];
        product.limbs_->limb[i + j] = static_cast<std::uint32_t>(carry);
      }
    }
    return product.trim();
  }

  struct Division;
  /// Schoolbook division as Knuth's algorithm D: each digit of the quotient is guessed from two leading limbs.
  static Division divide(const Number& dividend, const Number& divisor);

 private:
  struct Zeros {
    std::uint32_t count;
  };
  struct Limbs {
    std::uint32_t references, count;
    std::uint32_t limb[];
  };
  explicit Number(Zeros zeros)
      : limbs_(static_cast<Limbs*>(std::malloc(sizeof(Limbs) + zeros.count * sizeof(std::uint32_t)))) {
    require(limbs_ != nullptr, "malloc returned null");
    limbs_->references = 1;
    limbs_->count = zeros.count;
    std::memset(limbs_->limb, 0, zeros.count * sizeof(std::uint32_t));
  }
  void drop_zeros() {
    while (limbs_->count > 0 && limbs_->limb[limbs_->count - 1] == 0) --limbs_->count;
  }
  Number trim() {
    drop_zeros();
    return std::move(*this);
  }
  /// With one limb more than before, whatever its value.
  static Number shifted_left(const Number& a, unsigned bits) {
    Number result(Zeros{a.size() + 1});
    for (std::uint32_t at = 0; at <= a.size(); ++at) {
      const std::uint64_t wide = std::uint64_t{a[at]} << 32 | (at > 0 ? a[at - 1] : 0);
      result.limbs_->limb[at] = static_cast<std::uint32_t>(wide << bits >> 32);
    }
    return result;
  }
  Limbs* limbs_;
};

struct Number::Division {
  Number quotient, remainder;
};

inline Number::Division Number::divide(const Number& dividend, const Number& divisor) {
  require(divisor.size() > 0, "division by zero");
  if (dividend < divisor) return {Number(0), dividend};
  const std::uint32_t n = divisor.size(), digits = dividend.size() - n + 1;
  const auto shift = static_cast<unsigned>(__builtin_clz(divisor[n - 1]));
  Number rest = shifted_left(dividend, shift), quotient(Zeros{digits});
  const Number by = shifted_left(divisor, shift);
  std::uint32_t* r = rest.limbs_->limb;
  for (std::uint32_t j = digits; j-- > 0;) {
    const std::uint64_t head = std::uint64_t{r[j + n]} << 32 | r[j + n - 1];
    std::uint64_t guess = head / by[n - 1], left = head % by[n - 1];
    while (guess >> 32 != 0 || (n > 1 && guess * by[n - 2] > (left << 32 | r[j + n - 2]))) {
      --guess;
      left += by[n - 1];
      if (left >> 32 != 0) break;
    }
    std::uint64_t carry = 0;
    std::int64_t borrow = 0;
    for (std::uint32_t i = 0; i <= n; ++i, carry >>= 32, borrow >>= 32) {
      carry += i < n ? guess * by[i] : 0;
      borrow += std::int64_t{r[j + i]} - static_cast<std::uint32_t>(carry);
      r[j + i] = static_cast<std::uint32_t>(borrow);
    }
    if (borrow < 0) {  // The guess was one too large, which is rare.
      --guess;
      std::uint64_t sum = 0;
      for (std::uint32_t i = 0; i <= n; ++i, sum >>= 32) {
        sum += std::uint64_t{r[j + i]} + (i < n ? by[i] : 0);
        r[j + i] = static_cast<std::uint32_t>(sum);
      }
    }
    quotient.limbs_->limb[j] = static_cast<std::uint32_t>(guess);
  }
  for (std::uint32_t at = 0; at < rest.size() && shift != 0; ++at)
    r[at] = r[at] >> shift | (at + 1 < rest.size() ? r[at + 1] << (32 - shift) : 0);
  return {quotient.trim(), rest.trim()};
}

}  // namespace host_bench
