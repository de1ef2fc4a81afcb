#include "flower/format/keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

#include "base/plain/json.h"
#include "flower/testing.h"

namespace evenkeel::flower {
namespace {

using testing::refusal;
using testing::TemporaryFolder;

bool anybody(const PublicKey&) { return true; }

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text.push_back(static_cast<char>(c));
  ::pclose(pipe);
  return text;
}

TEST(Keys, AreReadableByTheirOwnerOnlyAndDoNotReplaceFiles) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "node.pem";
  const Key key = make_key(file);
  struct stat status {};
  ::stat(file.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(Key::load(file).public_key(), key.public_key());
  EXPECT_NE(testing::refusal([&] { make_key(file); }).find("never written over"), std::string::npos);
  EXPECT_EQ(Key::load(file).public_key(), key.public_key());
  ::chmod(file.c_str(), 0644);
  EXPECT_NE(testing::refusal([&] { Key::load(file); }).find("chmod 600"), std::string::npos);
}

TEST(Keys, OpensshLineAndFingerprintEqualSshKeygens) {
  if (output_of("command -v ssh-keygen").empty()) GTEST_SKIP() << "no ssh-keygen here";
  const testing::TemporaryFolder folder;
  const Key key = make_key(folder.path() / "node.pem");
  write_file_atomic(folder.path() / "public.pem", key.public_key().pem());
  const std::string line = output_of("ssh-keygen -i -m PKCS8 -f " + (folder.path() / "public.pem").string());
  EXPECT_EQ(openssh_line(key.public_key(), "") + "\n", line);
  write_file_atomic(folder.path() / "key.pub", openssh_line(key.public_key(), "site one") + "\n");
  const std::string shown = output_of("ssh-keygen -l -f " + (folder.path() / "key.pub").string());
  EXPECT_NE(shown.find(key.public_key().fingerprint()), std::string::npos) << shown;
}

TEST(Keys, OfOpensshsFormatAreWrittenAndRead) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  const Key key = make_key(file, KeyFormat::kOpenssh, "site one");
  struct stat status {};
  ::stat(file.c_str(), &status);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const Key again = Key::load(file);
  EXPECT_EQ(again.public_key(), key.public_key());
  EXPECT_TRUE(key.public_key().signed_by("text", again.sign("text")));
}

TEST(Keys, OfOpensshsFormatAreReadBySshKeygen) {
  if (output_of("command -v ssh-keygen").empty()) GTEST_SKIP() << "no ssh-keygen here";
  const testing::TemporaryFolder folder;
  for (int i = 0; i < 40; ++i) {  // among them numbers with leading zeros and sign bits
    const auto file = (folder.path() / ("key" + std::to_string(i))).string();
    const Key key = make_key(file, KeyFormat::kOpenssh, "site");
    EXPECT_EQ(output_of("ssh-keygen -y -P '' -f " + file), openssh_line(key.public_key(), "site") + "\n");
  }
}

TEST(Keys, OfSshKeygenAreReadWithoutAConversion) {
  if (output_of("command -v ssh-keygen").empty()) GTEST_SKIP() << "no ssh-keygen here";
  const testing::TemporaryFolder folder;
  for (const std::string bits : {"256", "384"}) {
    const auto file = (folder.path() / bits).string();
    output_of("ssh-keygen -q -t ecdsa -N '' -C name -b " + bits + " -f " + file);
    const auto allowed = read_allow_list(file + ".pub");
    EXPECT_EQ(allowed.at(0).key, Key::load(file).public_key());
    EXPECT_EQ(allowed[0].name, "name");
  }
}

TEST(Keys, OfSshKeygenThatCannotBeUsedAreRefusedWithTheReason) {
  if (output_of("command -v ssh-keygen").empty()) GTEST_SKIP() << "no ssh-keygen here";
  const testing::TemporaryFolder folder;
  const auto locked = (folder.path() / "locked").string(), foreign = (folder.path() / "foreign").string();
  output_of("ssh-keygen -q -t ecdsa -b 384 -N secret -f " + locked);
  EXPECT_NE(testing::refusal([&] { Key::load(locked); }).find("run: ssh-keygen -p -N '' -f " + locked),
            std::string::npos);
  output_of("ssh-keygen -q -t ed25519 -N '' -f " + foreign);
  EXPECT_NE(testing::refusal([&] { Key::load(foreign); }).find("kind ssh-ed25519, allowed: EC on P-384 or P-256"),
            std::string::npos)
      << testing::refusal([&] { Key::load(foreign); });
  output_of("ssh-keygen -q -t ecdsa -b 521 -N '' -f " + foreign + "521");
  EXPECT_NE(testing::refusal([&] { Key::load(foreign + "521"); }).find("another kind, allowed"), std::string::npos);
}

TEST(Keys, OfOpensshsFormatThatAreDamagedAreRefused) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "key";
  make_key(file, KeyFormat::kOpenssh, "site");
  const std::string whole = read_file(file, 4096);
  const auto read = [&](const std::string& text) {
    write_file_atomic(file, text);
    ::chmod(file.c_str(), 0600);
    return testing::refusal([&] { Key::load(file); });
  };
  const size_t begin = whole.find('\n') + 1;
  EXPECT_NE(read(whole.substr(0, begin + 80)).find("damaged"), std::string::npos);
  // Before the end, where the comment is, which may be any text, any character that differs is noticed.
  for (size_t at = begin; at < whole.find("-----END") - 26; at += 3) {
    std::string other = whole;
    if (other[at] == '\n') continue;
    other[at] = other[at] == 'A' ? 'B' : 'A';
    EXPECT_NE(read(other).find(file.string()), std::string::npos) << at << " of " << whole;
  }
}

TEST(Keys, OfOtherTypesAreRefused) {
  const testing::TemporaryFolder folder;
  const auto file = (folder.path() / "key").string();
  for (const std::string command :
       {"openssl genpkey -algorithm ed25519", "openssl ecparam -name secp521r1 -genkey -noout"}) {
    write_file_atomic(file, output_of(command + " 2>/dev/null"));
    ::chmod(file.c_str(), 0600);
    EXPECT_NE(testing::refusal([&] { Key::load(file); }).find("another kind, allowed: EC on P-384 or P-256"),
              std::string::npos);
  }
  write_file_atomic(file, "nothing of the kind");
  ::chmod(file.c_str(), 0600);
  EXPECT_NE(testing::refusal([&] { Key::load(file); }).find("no private key"), std::string::npos);
}

TEST(AllowList, ErrorsNameFileAndLine) {
  const std::string a = openssh_line(Key::make().public_key(), "site one");
  const std::string b = openssh_line(Key::make().public_key(), "");
  const auto allowed = parse_allow_list("# ours\n\n" + a + "\r\n  " + b + "\n", "keys.txt");
  ASSERT_EQ(allowed.size(), 2u);
  EXPECT_EQ(allowed[0].name, "site one");
  EXPECT_EQ(allowed[1].name, allowed[1].key.fingerprint());

  const auto read = [](const std::string& text) {
    return testing::refusal([&] { parse_allow_list(text, "keys.txt"); });
  };
  EXPECT_EQ(read(a + "\n\n" + a + " again"), "[config] keys.txt, line 3: this key stands twice");
  const std::string same_name = openssh_line(Key::make().public_key(), "site one");
  EXPECT_EQ(read(a + "\n" + same_name), "[config] keys.txt, line 2: the name \"site one\" stands twice");
  EXPECT_NE(read("ssh-ed25519 AAAA name").find("keys.txt, line 1 is no OpenSSH public key"), std::string::npos);
  EXPECT_NE(read(Key::make().public_key().pem()).find("line 1"), std::string::npos);
  EXPECT_EQ(read("# nobody\n"), "[config] keys.txt allows no key");
  std::string off_curve = a;
  off_curve[80] = off_curve[80] == 'A' ? 'B' : 'A';
  EXPECT_NE(read(off_curve).find("not on its curve"), std::string::npos);
}

TEST(AllowList, ALineMaySayWhichKeyItReplaces) {
  const auto old = Key::make().public_key().fingerprint();
  const auto line = [](const std::string& comment) { return openssh_line(Key::make().public_key(), comment) + "\n"; };
  const auto list = parse_allow_list(line(concat("north site replaces=", old)) + line("hill"), "keys.txt");
  EXPECT_EQ(list.at(0).name, "north site");
  EXPECT_EQ(list.at(0).replaces, old);
  EXPECT_EQ(list.at(1).replaces, "");
  const auto bare = parse_allow_list(line(concat("replaces=", old)), "keys.txt");
  EXPECT_EQ(bare.at(0).name, bare.at(0).key.fingerprint());
  EXPECT_EQ(bare.at(0).replaces, old);
}

TEST(AllowList, AReplacedKeyIsNamedRightlyAndOnce) {
  const auto key = Key::make().public_key();
  const auto line = [](const std::string& comment) { return openssh_line(Key::make().public_key(), comment) + "\n"; };
  const auto refused = [](const std::string& text) {
    return testing::refusal([&] { parse_allow_list(text, "keys.txt"); });
  };
  const auto by = concat("replaces=", key.fingerprint());
  EXPECT_NE(refused(line("a replaces=SHA256:short")).find("[config] keys.txt, line 1: replaces is \"SHA256:short\""),
            std::string::npos);
  EXPECT_NE(refused(line("a " + by) + line("b " + by)).find("two keys replace"), std::string::npos);
  EXPECT_NE(refused(line("a " + by) + openssh_line(key, "b")).find("remove the line of the replaced key"),
            std::string::npos);
}

TEST(Signature, IsValidFromFiveSecondsAheadTo305SecondsBehind) {
  Signer signer(Key::make());
  Verifier verifier;
  const double signed_at = 1'700'000'000.25;
  const auto headers = signer.headers(signed_at);
  for (const auto& [age, good] : {std::pair{-6.0, false}, {-4.0, true}, {0.0, true}, {303.0, true}, {306.0, false}}) {
    const auto verdict = verifier.check(headers, anybody, signed_at + age);
    EXPECT_EQ(verdict.key.has_value(), good) << age << ": " << verdict.refusal;
    if (verdict.key) {
      EXPECT_EQ(*verdict.key, signer.public_key());
    }
  }
}

TEST(Signature, IsReusedForAMinute) {
  Signer signer(Key::make());
  const auto first = signer.headers(1000);
  EXPECT_EQ(signer.headers(1059).signature, first.signature);
  EXPECT_NE(signer.headers(1061).signature, first.signature);
  EXPECT_NE(signer.headers(900).signature, first.signature) << "a clock that was set back";
}

TEST(Signature, OfAnotherKeyOrTimeIsRefused) {
  Signer signer(Key::make()), other(Key::make());
  Verifier verifier;
  const auto good = signer.headers(1000);
  ASSERT_TRUE(verifier.check(good, anybody, 1000).key);
  auto mixed = good;
  mixed.public_key = other.headers(1000).public_key;
  EXPECT_EQ(verifier.check(mixed, anybody, 1000).refusal, "a signature of another key");
  auto later = good;
  later.timestamp = format_timestamp(1200);
  EXPECT_EQ(verifier.check(later, anybody, 1200).refusal, "a signature of another key");
  const auto nobody = [](const PublicKey&) { return false; };
  EXPECT_NE(verifier.check(good, nobody, 1000).refusal.find("is not known here"), std::string::npos)
      << "although it was checked before";
  for (const auto& bad :
       {SignedHeaders{}, SignedHeaders{"x", good.timestamp, "y"}, SignedHeaders{good.public_key, "now", "AAAA"},
        SignedHeaders{good.public_key, good.timestamp, ""}})
    EXPECT_FALSE(verifier.check(bad, anybody, 1000).key);
}

TEST(Timestamp, ReadsAnyTimeZone) {
  EXPECT_EQ(format_timestamp(1'000'000'000.5), "2001-09-09T01:46:40.500000+00:00");
  for (const char* text : {"2001-09-09T01:46:40.5+00:00", "2001-09-09T03:46:40.500000+02:00",
                           "2001-09-08T20:16:40.500-05:30", "2001-09-09T01:46:40.5Z"})
    EXPECT_EQ(parse_timestamp(text), 1'000'000'000.5) << text;
  for (const char* text :
       {"", "2001-09-09", "2001-09-09T01:46:40", "2001-13-09T01:46:40Z", "2001-09-09T01:46:40Z ", "x"})
    EXPECT_FALSE(parse_timestamp(text)) << text;
}

}  // namespace
}  // namespace evenkeel::flower
