// Signatures: equal for calls that may share a recording.
#include <gtest/gtest.h>

#include <array>

#include "cgtree/record/call.h"
#include "interop/tensor/empty.h"

namespace cgtree::testing {
namespace {

class SignatureTest : public ::testing::Test {
 protected:
  const Tensor x_ = empty({4}, DType::kFloat32, Device::host());
  const Tensor y_ = empty({4}, DType::kFloat32, Device::host());
  const Tensor scalar_ = empty(Shape(), DType::kFloat32, Device::host());
  const Tensor none_;
  const std::array<const Tensor*, 2> both_{&x_, &y_};
};

TEST_F(SignatureTest, ABufferIsNoInput) {
  const InputList inputs(both_), with_buffer(both_, 1);

  EXPECT_TRUE(Signature(inputs).matches(inputs));
  EXPECT_FALSE(Signature(inputs).matches(with_buffer));
  EXPECT_FALSE(Signature(with_buffer).matches(inputs));
}

TEST_F(SignatureTest, AnotherKeyIsAnotherSignature) {
  const InputList plain(both_);
  const InputList one = plain.with_key("draft=1"), two = plain.with_key("draft=2");

  EXPECT_TRUE(Signature(one).matches(one));
  EXPECT_FALSE(Signature(one).matches(two));
  EXPECT_FALSE(Signature(one).matches(plain));
  EXPECT_FALSE(Signature(plain).matches(one));
}

TEST_F(SignatureTest, ABufferThatIsNotGivenIsNoScalarOne) {
  const std::array<const Tensor*, 2> into_scalar{&x_, &scalar_}, into_none{&x_, &none_};

  EXPECT_TRUE(Signature(InputList(into_none, 1)).matches(InputList(into_none, 1)));
  EXPECT_FALSE(Signature(InputList(into_scalar, 1)).matches(InputList(into_none, 1)));
  EXPECT_FALSE(Signature(InputList(into_none, 1)).matches(InputList(into_scalar, 1)));
}

}  // namespace
}  // namespace cgtree::testing
