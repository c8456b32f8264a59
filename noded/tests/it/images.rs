//! Images as streams, from one node's disk to another's export and back.

use std::{fs, os::unix::fs::FileExt, os::unix::fs::MetadataExt, path::PathBuf};

use futures::{StreamExt, stream};
use muster_proto::v1::{
    self, DiskCreate, ExportImage, ExportPublish, ExportStage, ImageChunk, ImageRef, WriteImageRequest,
    image_ref::Image, node_call::Call, write_image_request::Part,
};
use tonic::{Code, Status};

use crate::program::{Program, context, names, uuid, wait_for};

const MIB: u64 = 1024 * 1024;

fn disk() -> ImageRef {
    ImageRef { image: Some(Image::DiskUuid(uuid(2))) }
}

fn export(name: &str) -> ImageRef {
    ImageRef { image: Some(Image::Export(ExportImage { export_uuid: uuid(9), name: name.to_owned() })) }
}

fn disk_path(program: &Program) -> PathBuf {
    program.path("storage_dir").join(format!("{}.raw", uuid(2)))
}

async fn with_disk(size_mib: u64) -> Program {
    let program = Program::start().await;
    program
        .call("1/1/1", Call::DiskCreate(DiskCreate { disk_uuid: uuid(2), size_mib }))
        .await
        .expect("a disk");
    program
        .call("1/2/1", Call::ExportStage(ExportStage { export_uuid: uuid(9) }))
        .await
        .expect("a staged export");
    program
}

async fn read(program: &Program, image: ImageRef) -> Result<Vec<ImageChunk>, Status> {
    let request = v1::ReadImageRequest { context: context(), image: Some(image), job_id: 7 };
    let chunks = program.node().await.read_image(request).await?.into_inner();
    chunks.collect::<Vec<_>>().await.into_iter().collect()
}

async fn write(
    program: &Program,
    image: ImageRef,
    chunks: Vec<ImageChunk>,
) -> Result<v1::WriteImageResponse, Status> {
    let start = v1::WriteImageStart { context: context(), image: Some(image), job_id: 7 };
    let parts = [Part::Start(start)].into_iter().chain(chunks.into_iter().map(Part::Chunk));
    let requests = stream::iter(parts.map(|part| WriteImageRequest { part: Some(part) }));
    Ok(program.node().await.write_image(requests).await?.into_inner())
}

#[tokio::test]
async fn an_image_travels_without_its_holes() {
    let program = with_disk(64).await;
    let file = fs::OpenOptions::new().write(true).open(disk_path(&program)).unwrap();
    file.write_all_at(b"boot", 0).unwrap();
    file.write_all_at(&vec![7; usize::try_from(3 * MIB).unwrap()], 32 * MIB).unwrap();
    let chunks = read(&program, disk()).await.unwrap();
    assert_eq!((chunks[0].length, chunks[0].data.len()), (Some(64 * MIB), 0));
    assert!(chunks.iter().all(|chunk| chunk.data.len() <= usize::try_from(MIB).unwrap()));
    let sent: usize = chunks.iter().map(|chunk| chunk.data.len()).sum();
    assert!(sent < usize::try_from(4 * MIB).unwrap(), "{sent} bytes were sent");

    let content = fs::read(disk_path(&program)).unwrap();
    let written = write(&program, export("sda.raw"), chunks).await.unwrap();
    assert!(written.bytes_written >= 3 * MIB && written.bytes_written < 4 * MIB, "{written:?}");
    let manifest = ExportPublish { export_uuid: uuid(9), manifest: "{}".to_owned() };
    let path = program.call("1/3/1", Call::ExportPublish(manifest)).await.unwrap();
    let copy = PathBuf::from(path).join("sda.raw");
    assert_eq!(fs::read(&copy).unwrap(), content);
    assert!(fs::metadata(&copy).unwrap().blocks() * 512 < 5 * MIB, "the copy is sparse");

    // Back onto the disk, on which something else lies by now.
    file.write_all_at(&vec![9; usize::try_from(MIB).unwrap()], 8 * MIB).unwrap();
    let chunks = read(&program, export("sda.raw")).await.unwrap();
    write(&program, disk(), chunks).await.unwrap();
    assert_eq!(fs::read(disk_path(&program)).unwrap(), content);
}

#[tokio::test]
async fn an_image_that_is_not_right_is_refused() {
    let program = with_disk(1).await;
    let first = |length| ImageChunk { offset: 0, data: Vec::new(), length: Some(length) };
    let data = |offset| ImageChunk { offset, data: vec![1], length: None };
    for (image, chunks, expected) in [
        (disk(), vec![first(2 * MIB)], Code::InvalidArgument),
        (disk(), vec![data(0)], Code::InvalidArgument),
        (disk(), vec![], Code::InvalidArgument),
        (disk(), vec![first(MIB), first(MIB)], Code::InvalidArgument),
        (disk(), vec![first(MIB), data(5), data(5)], Code::InvalidArgument),
        (disk(), vec![first(MIB), data(MIB)], Code::InvalidArgument),
        (export("../sda.raw"), vec![first(MIB)], Code::InvalidArgument),
        (ImageRef { image: Some(Image::DiskUuid(uuid(3))) }, vec![first(MIB)], Code::NotFound),
        (ImageRef { image: None }, vec![first(MIB)], Code::InvalidArgument),
    ] {
        let what = format!("{image:?} {chunks:?}");
        assert_eq!(write(&program, image, chunks).await.unwrap_err().code(), expected, "{what}");
    }
    assert_eq!(fs::metadata(disk_path(&program)).unwrap().len(), MIB, "the disk keeps its size");
    for (image, expected) in [
        (export("sda.raw"), Code::NotFound),
        (ImageRef { image: Some(Image::DiskUuid(uuid(3))) }, Code::NotFound),
        (export(".."), Code::InvalidArgument),
    ] {
        assert_eq!(read(&program, image).await.unwrap_err().code(), expected);
    }
    let staging = program.path("export_dir").join(format!("{}.staging", uuid(9)));
    assert_eq!(names(&staging), Vec::<String>::new());
}

#[tokio::test]
async fn faults_fail_images_too() {
    let program = with_disk(1).await;
    program.faults("[read_image]\nfail = \"bad sector\"\n[write_image]\nfail = \"no space\"\n");
    assert_eq!(read(&program, disk()).await.unwrap_err().message(), "bad sector");
    let first = ImageChunk { offset: 0, data: Vec::new(), length: Some(MIB) };
    assert_eq!(write(&program, disk(), vec![first]).await.unwrap_err().message(), "no space");
}

/// Ends the job of the copies; how many there were.
async fn end_job(program: &Program) -> u32 {
    let request = v1::EndJobRequest { context: context(), job_id: 7, call_ids: Vec::new() };
    program.agent().await.end_job(request).await.expect("nothing is left of them").into_inner().ended
}

#[tokio::test]
async fn a_reader_ends_with_its_job_also_if_its_caller_takes_nothing() {
    let program = with_disk(64).await;
    let file = fs::OpenOptions::new().write(true).open(disk_path(&program)).unwrap();
    file.write_all_at(&vec![7; usize::try_from(32 * MIB).unwrap()], 0).unwrap();
    let request = v1::ReadImageRequest { context: context(), image: Some(disk()), job_id: 7 };
    let mut chunks = program.node().await.read_image(request).await.unwrap().into_inner();
    chunks.message().await.unwrap().unwrap();
    assert_eq!(end_job(&program).await, 1);
    let ended = loop {
        match chunks.message().await {
            Ok(chunk) => drop(chunk.expect("the image must not seem to be whole")),
            Err(status) => break status,
        }
    };
    assert_eq!((ended.code(), ended.message()), (Code::Aborted, "ended at the request of the master"));
    assert_eq!(end_job(&program).await, 0);
}

#[tokio::test]
async fn a_writer_ends_with_its_job_and_a_delay_too() {
    let program = with_disk(1).await;
    for text in ["", "[write_image]\ndelay_ms = 600000\n"] {
        program.faults(text);
        let start = v1::WriteImageStart { context: context(), image: Some(export("sda.raw")), job_id: 7 };
        let first = ImageChunk { offset: 0, data: Vec::new(), length: Some(MIB) };
        let data = ImageChunk { offset: 0, data: vec![1], length: None };
        let parts = [Part::Start(start), Part::Chunk(first), Part::Chunk(data)];
        let requests = parts.map(|part| WriteImageRequest { part: Some(part) });
        // It has no end.
        let requests = stream::iter(requests).chain(stream::pending());
        let mut node = program.node().await;
        let writing = tokio::spawn(async move { node.write_image(requests).await });
        let ended = wait_for(async || Some(end_job(&program).await).filter(|ended| *ended > 0)).await;
        assert_eq!(ended, 1);
        let status = writing.await.unwrap().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::Aborted, "ended at the request of the master"));
    }
}
