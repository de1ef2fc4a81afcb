#include "base/format/fingerprint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/format/sha256_streams.h"
#include "base/testing.h"

namespace evenkeel {
namespace {

using testing::TemporaryFile;

std::string noise(size_t bytes) {
  std::string text(bytes, '\0');
  uint32_t state = 7;
  for (char& byte : text) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

/// Computes the 32-byte digests by FIPS 180-4 for the words s, s + 16, s + 32, ... of `bytes`, for every s.
std::string digests_by_definition(std::string_view bytes) {
  std::string digests;
  for (size_t s = 0; s < 16; ++s) {
    std::string text;
    for (size_t at = 4 * s; at < bytes.size(); at += 64) text += bytes.substr(at, 4);
    const auto hex = sha256(text);
    for (size_t i = 0; i < hex.size(); i += 2) digests += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return digests;
}

TEST(Sha256Streams, StreamsEqualSha256OfEachText) {
  for (const size_t blocks : {1, 2, 5}) {
    const auto bytes = noise(blocks * Sha256Streams::kBlock);
    Sha256Streams streams;
    streams.update(std::string_view(bytes).substr(0, Sha256Streams::kBlock));
    streams.update(std::string_view(bytes).substr(Sha256Streams::kBlock));
    const auto found = streams.finish();
    EXPECT_EQ(std::string(found.data(), found.size()), digests_by_definition(bytes));
  }
}

TEST(Fingerprint, FingerprintOfASmallFileIsItsSha256) {
  const testing::TemporaryFile file("abc");
  const auto print = fingerprint_of(file.path());
  EXPECT_EQ(print.kind, kWholeDigest);
  EXPECT_EQ(print.digest, sha256("abc"));
}

TEST(Fingerprint, FingerprintOfALargeFileHashesTheDigestsOfItsPieces) {
  auto bytes = noise(static_cast<size_t>(kTreePiece) + 3001);
  const testing::TemporaryFile file(bytes);
  const auto print = fingerprint_of(file.path());
  const int64_t length = static_cast<int64_t>(bytes.size());
  bytes.resize(static_cast<size_t>(kTreePiece) + 3072);
  auto digests = digests_by_definition(std::string_view(bytes).substr(0, static_cast<size_t>(kTreePiece))) +
                 digests_by_definition(std::string_view(bytes).substr(static_cast<size_t>(kTreePiece)));
  digests.append(reinterpret_cast<const char*>(&length), 8);
  EXPECT_EQ(print.kind, kTreeDigest);
  EXPECT_EQ(print.digest, sha256(digests));
}

TEST(Fingerprint, TrailingZerosChangeTheFingerprint) {
  const testing::TemporaryFile shorter(noise(static_cast<size_t>(kTreePiece) + 5)),
      longer(noise(static_cast<size_t>(kTreePiece) + 5) + std::string(3, '\0'));
  EXPECT_NE(tree_digest(shorter.path()), tree_digest(longer.path()));
}

TEST(Fingerprint, AFileIsSettledTwoSecondsAfterItsLastChange) {
  const FileIdentity file{.bytes = 1, .modified_ns = 5'000'000'000, .changed_ns = 6'000'000'000};
  EXPECT_FALSE(is_settled(file, 7'900'000'000));
  EXPECT_TRUE(is_settled(file, 8'000'000'000));
  EXPECT_FALSE(is_settled(file, 1'000'000'000));  // the system clock was set back
}

/// A thread appends to the file until its change falls into the time in which the file is hashed.
TEST(Fingerprint, ASmallFileThatChangesWhileItIsReadIsAnError) {
  const testing::TemporaryFile file(noise(size_t{1} << 20));
  std::atomic<bool> ended = false;
  std::thread writer([&] {
    for (std::ofstream out(file.path(), std::ios::app); !ended;
         std::this_thread::sleep_for(std::chrono::microseconds(50)))
      out << 'x' << std::flush;
  });
  std::string text = "no error";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  while (text == "no error" && std::chrono::steady_clock::now() < end)
    text = testing::refusal([&] { fingerprint_of(file.path()); });
  ended = true;
  writer.join();
  EXPECT_NE(text.find("file.json: was changed while it was read"), std::string::npos) << text;
}

TEST(Fingerprint, APipeIsRejectedWithoutWaiting) {
  const testing::TemporaryFolder folder;
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::alarm(300);
  EXPECT_THROW(fingerprint_of(pipe), Error);
  EXPECT_THROW(tree_digest(pipe), Error);
  ::alarm(0);
}

TEST(Fingerprint, RejectsAMissingFile) {
  EXPECT_THROW(fingerprint_of("/nowhere/model.safetensors"), Error);
  EXPECT_THROW(tree_digest("/nowhere/model.safetensors"), Error);
}

}  // namespace
}  // namespace evenkeel
