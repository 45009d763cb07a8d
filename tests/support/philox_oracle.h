// PhiloxOracle: the draws that are expected of a generator, by an independent implementation.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace cgtree::testing {

// Follows one seed's sequence, block by block, as an eager program on one thread would.
class PhiloxOracle {
 public:
  explicit PhiloxOracle(std::uint64_t seed) : seed_(seed) {}

  std::uint64_t seed() const { return seed_; }
  std::uint64_t offset() const { return offset_; }
  void reseed(std::uint64_t seed, std::uint64_t offset = 0) {
    seed_ = seed;
    offset_ = offset;
  }

  std::vector<float> uniform(std::int64_t count) {
    std::vector<float> values;
    for (std::uint32_t word : words((count + 3) / 4))
      values.push_back(static_cast<float>(word / 256) / 16777216.0f);
    values.resize(static_cast<std::size_t>(count));
    return values;
  }
  std::vector<std::int64_t> integers(std::int64_t count, std::int64_t low, std::int64_t high) {
    const std::vector<std::uint32_t> bits = words((count + 1) / 2);
    std::vector<std::int64_t> values;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      const unsigned __int128 wide =
          bits[2 * i] + (static_cast<unsigned __int128>(1) << 32) * bits[2 * i + 1];
      const auto range = static_cast<unsigned __int128>(static_cast<__int128>(high) - low);
      values.push_back(
          static_cast<std::int64_t>(low + static_cast<__int128>((wide * range) >> 64)));
    }
    return values;
  }
  std::vector<std::uint32_t> words(std::int64_t blocks) {
    std::vector<std::uint32_t> all;
    for (std::int64_t i = 0; i < blocks; ++i) {
      for (std::uint32_t word : block(offset_++))
        all.push_back(word);
    }
    return all;
  }

 private:
  // The formulation of the paper: two multiplications, a permutation, and the keys' Weyl sequence.
  std::array<std::uint32_t, 4> block(std::uint64_t number) const {
    std::array<std::uint32_t, 4> x = {static_cast<std::uint32_t>(number % (1ull << 32)),
                                      static_cast<std::uint32_t>(number / (1ull << 32)), 0, 0};
    for (std::uint32_t round = 0; round < 10; ++round) {
      const std::uint32_t k0 = static_cast<std::uint32_t>(seed_) + round * 0x9E3779B9u;
      const std::uint32_t k1 = static_cast<std::uint32_t>(seed_ >> 32) + round * 0xBB67AE85u;
      const std::uint64_t left = 0xD2511F53ull * x[0];
      const std::uint64_t right = 0xCD9E8D57ull * x[2];
      x = {static_cast<std::uint32_t>(right / (1ull << 32)) ^ x[1] ^ k0,
           static_cast<std::uint32_t>(right % (1ull << 32)),
           static_cast<std::uint32_t>(left / (1ull << 32)) ^ x[3] ^ k1,
           static_cast<std::uint32_t>(left % (1ull << 32))};
    }
    return x;
  }

  std::uint64_t seed_;
  std::uint64_t offset_ = 0;
};

}  // namespace cgtree::testing
