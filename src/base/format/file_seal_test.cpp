#include "base/format/file_seal.h"

#include <gtest/gtest.h>

#include "base/plain/error.h"
#include "base/plain/files.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

class FileSeals : public ::testing::Test {
 protected:
  testing::TemporaryFolder temporary_;
  fs::path file_ = temporary_.path() / "records.jsonl";
};

TEST_F(FileSeals, ReferencedFilesAreCheckedByHash) {
  write_file_atomic(file_, "tensors");
  const Json json = to_json({FileSeal::of(file_)});
  std::vector<FileSeal> seals;
  from_json({json, "here"}, seals);
  const auto* seal = find_seal(seals, "records.jsonl");
  ASSERT_TRUE(seal);
  EXPECT_EQ(seal->bytes, 7);
  EXPECT_NO_THROW(seal->check(temporary_.path()));
  write_file_atomic(file_, "tensord");
  EXPECT_NE(testing::refusal([&] { seal->check(temporary_.path()); }).find("records.jsonl: damaged"),
            std::string::npos);
  fs::remove(file_);
  EXPECT_THROW(seal->check(temporary_.path()), Error);
  EXPECT_FALSE(find_seal(seals, "other"));
}

TEST_F(FileSeals, AHashedFileIsReadAgainOnlyAfterAChange) {
  write_file_atomic(file_, "tensors");
  auto seal = FileSeal::of(file_);
  seal.fingerprint.digest = "none that a file has";
  EXPECT_NO_THROW(seal.check(temporary_.path()));
  write_file_atomic(file_, "tensors");
  EXPECT_THROW(seal.check(temporary_.path()), Error);
}

TEST_F(FileSeals, ALargeFileHasTheTreeDigestOfItsBytes) {
  for (const int64_t bytes : {kTreePiece, kTreePiece + 1, 2 * kTreePiece + 1031}) {
    std::string content(static_cast<size_t>(bytes), 'a');
    for (size_t i = 0; i < content.size(); i += 997) content[i] = static_cast<char>(i / 997);
    write_file_atomic(file_, content);
    const auto seal = FileSeal::of(file_);
    EXPECT_EQ(seal, FileSeal::of(file_, content)) << bytes;
    EXPECT_EQ(seal.fingerprint.kind, bytes > kTreePiece ? kTreeDigest : kWholeDigest);
    EXPECT_EQ(seal.fingerprint.digest, bytes > kTreePiece ? tree_digest(file_) : sha256(content));
    const Json json = to_json({seal});
    std::vector<FileSeal> stored;
    from_json({json, "here"}, stored);
    ASSERT_EQ(stored.size(), 1u);
    EXPECT_EQ(stored[0], seal);
    EXPECT_NO_THROW(stored[0].check(temporary_.path()));
    content.back() ^= 1;
    write_file_atomic(file_, content);
    EXPECT_NE(testing::refusal([&] { stored[0].check(temporary_.path()); }).find("records.jsonl: damaged"),
              std::string::npos);
    fs::resize_file(file_, static_cast<uintmax_t>(bytes) - 1);
    EXPECT_NE(testing::refusal([&] { stored[0].check(temporary_.path()); }).find("are not the"), std::string::npos);
  }
}

}  // namespace
}  // namespace evenkeel
