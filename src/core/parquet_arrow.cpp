// libares_parquet.so: opens a Parquet file with Arrow's C++ and hands its rows out through Arrow's
// C stream interface, so that no C++ type crosses the border. Nothing may be thrown through it.
#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <parquet/arrow/reader.h>

#include <cstdio>
#include <exception>

namespace
{
// The batches must not outlive their file reader: one object owns both.
class Rows : public arrow::RecordBatchReader
{
  public:
    std::unique_ptr<parquet::arrow::FileReader> file;
    std::shared_ptr<arrow::RecordBatchReader> batches;

    std::shared_ptr<arrow::Schema> schema() const override
    {
        return batches->schema();
    }
    arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch> *out) override
    {
        try {
            return batches->ReadNext(out);
        } catch (const std::exception &e) {
            return arrow::Status::IOError(e.what());
        }
    }
};

arrow::Status open_rows(const char *path, int batch_rows, struct ArrowArrayStream *out)
{
    arrow::MemoryPool *pool = arrow::system_memory_pool(); // malloc: sanitizers see it
    parquet::ArrowReaderProperties properties(/*use_threads=*/false);
    properties.set_batch_size(batch_rows);
    properties.set_pre_buffer(false); // else a thread pool starts, and a row group is held whole
    parquet::ReaderProperties bounds(pool);
    bounds.enable_buffered_stream(); // column chunks come in pieces
    parquet::arrow::FileReaderBuilder builder;
    ARROW_ASSIGN_OR_RAISE(auto input, arrow::io::ReadableFile::Open(path, pool));
    ARROW_RETURN_NOT_OK(builder.Open(std::move(input), bounds));
    auto rows = std::make_shared<Rows>();
    ARROW_ASSIGN_OR_RAISE(rows->file, builder.memory_pool(pool)->properties(properties)->Build());
    ARROW_ASSIGN_OR_RAISE(rows->batches, rows->file->GetRecordBatchReader());
    return arrow::ExportRecordBatchReader(rows, out);
}
} // namespace

extern "C" __attribute__((visibility("default"))) int
ares_parquet_stream(const char *path, int batch_rows, struct ArrowArrayStream *out, char *error,
                    size_t error_size)
{
    try {
        arrow::Status status = open_rows(path, batch_rows, out);
        if (status.ok()) return 0;
        snprintf(error, error_size, "%s", status.message().c_str());
    } catch (const std::exception &e) {
        snprintf(error, error_size, "%s", e.what());
    }
    return -1;
}
