// Many tiny numbers that live for one operation, as the factoring program cfrac: the continued fraction of the square
// root of a 220-bit number, with trial divisions. What it proves about itself: A(k-1)^2 = (-1)^k * Q(k) modulo N.
#include "number.hpp"

namespace host_bench {
namespace {

constexpr unsigned kSteps = 240'000, kLimbs = 7, kStepsPerProof = 100;
constexpr std::uint32_t kPrimes[] = {3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41};

Number remainder(const Number& a, const Number& b) { return Number::divide(a, b).remainder; }
Number quotient(const Number& a, const Number& b) { return Number::divide(a, b).quotient; }

/// Newton's iteration from above.
Number square_root(const Number& square) {
  Number root = square;
  for (;;) {
    const Number better = quotient(root + quotient(square, root), Number(2));
    if (!(better < root)) return root;
    root = better;
  }
}

/// How often small primes divide the number, a cheap figure that keeps the divisions alive.
unsigned small_factors(Number number) {
  unsigned count = 0;
  for (std::uint32_t prime : kPrimes) {
    Number::Division division = Number::divide(number, Number(prime));
    for (; division.remainder.size() == 0; division = Number::divide(number, Number(prime)), ++count)
      number = division.quotient;
  }
  return count;
}

void run(const Setting& setting) {
  Random random(setting.seed);
  Number n(1);
  for (unsigned limb = 0; limb < kLimbs; ++limb) {
    const Number wide = Number(1U << 16) * Number(1U << 16);
    n = n * wide + Number(static_cast<std::uint32_t>(random.next()) | 1);
  }
  const Number root = square_root(n);
  require(!(n < root * root) && n < (root + Number(1)) * (root + Number(1)), "the square root is wrong");

  Number p(0), q(1), a = root, numerator = root, numerator_before(1);
  unsigned factors = 0;
  for (unsigned k = 1; k <= kSteps; ++k) {
    p = a * q - p;
    q = quotient(n - p * p, q);
    a = quotient(root + p, q);
    factors += small_factors(q);
    if (k % kStepsPerProof == 0) {
      const Number square = remainder(numerator * numerator, n);
      require(square == (k % 2 == 0 ? q : n - q), "the continued fraction is wrong");
    }
    const Number next = remainder(a * numerator + numerator_before, n);
    numerator_before = numerator;
    numerator = next;
  }
  require(factors > kSteps / 2, "too few small factors");
}

const Workload cfrac("cfrac", run);

}  // namespace
}  // namespace host_bench
