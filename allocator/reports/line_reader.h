// The lines of a text file, gzip or plain.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace cgtree {

class LineReader {
 public:
  // Throws InvalidArgument when the file cannot be opened.
  explicit LineReader(const std::string& path);
  ~LineReader();

  // Reads the next line, without its end; false at the end of the file. Throws InvalidArgument
  // where the compressed data end too early or are corrupt.
  bool next(std::string& line);

  std::size_t number() const { return number_; }  // of the line read last, from 1

  // The place as "FILE, line N", for messages.
  std::string place() const;

 private:
  struct File;
  bool fill();

  const std::string path_;
  std::unique_ptr<File> file_;
  std::string buffer_;
  std::size_t position_ = 0;  // in buffer_
  std::size_t number_ = 0;
};

}  // namespace cgtree
