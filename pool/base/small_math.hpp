// The two functions of mathematics that sampling needs, to nine digits: libm would cost every process, however small,
// a third of a megabyte of memory.
#pragma once
#include <bit>
#include <cstdint>

namespace cistern {

// The natural logarithm of a normal positive number.
constexpr double natural_log(double value) {
  constexpr double kLn2 = 0.693147180559945309417, kSqrt2 = 1.41421356237309504880;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & 0x000F'FFFF'FFFF'FFFF) | 0x3FF0'0000'0000'0000);  // [1, 2)
  if (mantissa > kSqrt2) {
    mantissa /= 2;
    ++exponent;
  }
  // log(m) = 2 artanh((m - 1) / (m + 1)), here with an argument of at most 0.172.
  const double s = (mantissa - 1) / (mantissa + 1), s2 = s * s;
  return exponent * kLn2 + 2 * s * (1 + s2 * (1.0 / 3 + s2 * (1.0 / 5 + s2 * (1.0 / 7 + s2 * (1.0 / 9 + s2 / 11)))));
}

// 1 - e^-x for x >= 0.
constexpr double one_minus_exp(double x) {
  if (x > 40) return 1;
  // e^-x = (e^-(x / 64))^64 where x is large; the series where it is small, so that nothing cancels.
  if (x < 0.5)
    return x * (1 - x / 2 * (1 - x / 3 * (1 - x / 4 * (1 - x / 5 * (1 - x / 6 * (1 - x / 7 * (1 - x / 8)))))));
  double power = 1 - one_minus_exp(x / 128);
  for (int i = 0; i < 7; ++i) power *= power;
  return 1 - power;
}

static_assert(natural_log(1) == 0 && natural_log(0.5) < -0.6931471805 && natural_log(0.5) > -0.6931471806);
static_assert(one_minus_exp(0) == 0 && one_minus_exp(1) > 0.63212055 && one_minus_exp(1) < 0.63212056);

}  // namespace cistern
